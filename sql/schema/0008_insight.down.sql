-- Takes the time series away.

alter table pgqueue.workers drop column running;
drop view pgqueue.insight_minutes, pgqueue.insight_minutes_all, pgqueue.insight_hours, pgqueue.insight_hours_all;
drop table pgqueue.series_written, pgqueue.series_minutes, pgqueue.series_hours, pgqueue.series_days, pgqueue.series_state;
drop function pgqueue.quantile(smallint[], bigint[], float8);
drop function pgqueue.merged(smallint[], bigint[]);
drop aggregate pgqueue.joined(anycompatiblearray);
