-- alerts/due: which alerts are to be looked at now, and in how many seconds the next one is.
-- index: none: a row for each alert
-- locks: none
-- run by: worker upkeep, drain
-- rights: monitor
-- why: a look more than a minute in the future was noted before the clock was set back
select array(select name from pgqueue.alerts where next_at <= clock.now or looked_at > clock.now + interval '1 minute' order by next_at, name),
       (select extract(epoch from min(pgqueue.as_datetime(next_at)) - clock.now)::float8 from pgqueue.alerts
        where next_at > clock.now)
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
