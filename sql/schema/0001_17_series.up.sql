-- Time series: what workers measured, by minutes, hours and days; and how deep queues were.

-- A worker adds a row for each minute, queue and task to series_written. Some two minutes later one worker moves them to
-- series_minutes, all workers' rows of a pair as one, with a row for the whole; and makes hours and days of what is over.
-- Rows are added and deleted, never changed, so that no two workers wait for each other.
create table pgqueue.series_written (
    at          timestamptz not null,
    queue       text,
    task        text,
    enqueued    bigint      not null default 0,
    started     bigint      not null default 0,
    succeeded   bigint      not null default 0,
    failed      bigint      not null default 0,
    retried     bigint      not null default 0,
    dead        bigint      not null default 0,
    cancelled   bigint      not null default 0,
    expired     bigint      not null default 0,
    reclaimed   bigint      not null default 0,
    wait_bins   smallint[]  not null default '{}',
    wait_counts bigint[]    not null default '{}',
    run_bins    smallint[]  not null default '{}',
    run_counts  bigint[]    not null default '{}'
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
comment on table pgqueue.series_written is 'What workers measured in the last minutes: a row for each worker, minute, queue and task.';
comment on column pgqueue.series_written.at is 'When the minute began, on the database''s clock.';
comment on column pgqueue.series_written.task is 'As queue.';
comment on column pgqueue.series_written.enqueued is 'Jobs that were added.';
comment on column pgqueue.series_written.started is 'Attempts that began.';
comment on column pgqueue.series_written.succeeded is 'Jobs that succeeded.';
comment on column pgqueue.series_written.failed is 'Attempts that failed.';
comment on column pgqueue.series_written.retried is 'Failed attempts whose job runs again.';
comment on column pgqueue.series_written.dead is 'Jobs that died.';
comment on column pgqueue.series_written.cancelled is 'Jobs that were cancelled.';
comment on column pgqueue.series_written.expired is 'Jobs that died because they were not started in time.';
comment on column pgqueue.series_written.reclaimed is 'Jobs taken over from lost workers.';
comment on column pgqueue.series_written.wait_counts is 'How many waits each of the wait_bins has.';
comment on column pgqueue.series_written.run_counts is 'How many attempts each of the run_bins has.';
comment on column pgqueue.series_written.queue is 'Null, as the task: those beyond the bound on pairs of queue and task.';
comment on column pgqueue.series_written.wait_bins is
    'Times from due to claim, as a sketch: bin n has those up to 0.0001 s * (1.045 / 0.955) ^ n, and wait_counts how many.';
comment on column pgqueue.series_written.run_bins is 'How long attempts ran, in the same way.';

create table pgqueue.series_minutes (
    like pgqueue.series_written including defaults including comments,
    whole boolean not null default false
);
comment on table pgqueue.series_minutes is 'What happened in each minute, by queue and task; whole: in all of them together.';
comment on column pgqueue.series_minutes.whole is 'True: the row is of all queues and tasks together.';
create index series_minutes_at on pgqueue.series_minutes (whole, at);

create table pgqueue.series_hours (like pgqueue.series_minutes including defaults including comments);
comment on table pgqueue.series_hours is 'What happened in each hour, as in series_minutes; only hours that are over.';
create index series_hours_at on pgqueue.series_hours (whole, at);

create table pgqueue.series_days (like pgqueue.series_minutes including defaults including comments);
comment on table pgqueue.series_days is 'What happened in each day (UTC), as in series_minutes; only days that are over.';
create index series_days_at on pgqueue.series_days (whole, at);

create table pgqueue.series_state (
    hours_until  timestamptz not null default '1970-01-01 00:00+00',
    days_until   timestamptz not null default '1970-01-01 00:00+00',
    keep_minutes interval    not null default '48 hours',
    keep_hours   interval    not null default '400 days',
    single       boolean     primary key default true check (single)
);
comment on table pgqueue.series_state is 'One row: hours before hours_until are in series_hours, days before days_until in series_days; for how long they are kept.';
comment on column pgqueue.series_state.single is 'True: there is no other row.';
comment on column pgqueue.series_state.hours_until is 'The hours before this instant are in series_hours.';
comment on column pgqueue.series_state.days_until is 'The days before this instant are in series_days.';
comment on column pgqueue.series_state.keep_minutes is 'For how long minutes are kept; queue.control.keep_series sets it.';
comment on column pgqueue.series_state.keep_hours is 'For how long hours and days are kept.';
insert into pgqueue.series_state default values;

-- The sketches of a group, one after the other. It reads no table; the views call it with the rights of the role that reads them.
-- callers: public
create aggregate pgqueue.joined(anycompatiblearray) (sfunc = pg_catalog.array_cat, stype = anycompatiblearray, initcond = '{}');

-- One sketch of several that were joined: each bin once, in order.
-- callers: public
create function pgqueue.merged(bins smallint[], counts bigint[], out merged_bins smallint[], out merged_counts bigint[])
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(bin order by bin), '{}'), coalesce(array_agg(count order by bin), '{}')
    from (select bin, sum(count)::bigint as count from unnest(bins, counts) as one (bin, count) group by bin) as summed
$$;

-- The time up to which a share of the times are, in seconds, within 5 %; null: there are none. Sketches may be joined.
-- callers: public
create function pgqueue.quantile(bins smallint[], counts bigint[], share float8) returns float8
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select 0.0001 * 0.955 * (1.045 / 0.955)::float8 ^ bin
    from (select bin, sum(sum(count)) over (order by bin) as up_to, sum(sum(count)) over () as total
          from unnest(bins, counts) as one (bin, count) group by bin) as summed
    where up_to > share * (total - 1) order by bin limit 1
$$;

create view pgqueue.insight_minutes as
    select at, queue, task, sum(enqueued)::bigint as enqueued, sum(started)::bigint as started,
           sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed, sum(retried)::bigint as retried,
           sum(dead)::bigint as dead, sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired,
           sum(reclaimed)::bigint as reclaimed,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.5) as wait_p50,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.95) as wait_p95,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.99) as wait_p99,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.5) as run_p50,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.95) as run_p95,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.99) as run_p99
    from pgqueue.series_minutes where not whole group by at, queue, task;
comment on view pgqueue.insight_minutes is 'What happened in each minute, by queue and task; times in seconds. Two minutes late.';

create view pgqueue.insight_minutes_all as
    select at, sum(enqueued)::bigint as enqueued, sum(started)::bigint as started,
           sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed, sum(retried)::bigint as retried,
           sum(dead)::bigint as dead, sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired,
           sum(reclaimed)::bigint as reclaimed,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.5) as wait_p50,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.95) as wait_p95,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.99) as wait_p99,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.5) as run_p50,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.95) as run_p95,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.99) as run_p99
    from pgqueue.series_minutes where whole group by at;
comment on view pgqueue.insight_minutes_all is 'What happened in each minute, in all queues and tasks together.';

create view pgqueue.insight_hours as
    select at, queue, task, sum(enqueued)::bigint as enqueued, sum(started)::bigint as started,
           sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed, sum(retried)::bigint as retried,
           sum(dead)::bigint as dead, sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired,
           sum(reclaimed)::bigint as reclaimed,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.5) as wait_p50,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.95) as wait_p95,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.99) as wait_p99,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.5) as run_p50,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.95) as run_p95,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.99) as run_p99
    from pgqueue.series_hours where not whole group by at, queue, task;
comment on view pgqueue.insight_hours is 'What happened in each hour that is over, by queue and task; times in seconds.';

create view pgqueue.insight_hours_all as
    select at, sum(enqueued)::bigint as enqueued, sum(started)::bigint as started,
           sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed, sum(retried)::bigint as retried,
           sum(dead)::bigint as dead, sum(cancelled)::bigint as cancelled, sum(expired)::bigint as expired,
           sum(reclaimed)::bigint as reclaimed,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.5) as wait_p50,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.95) as wait_p95,
           pgqueue.quantile(pgqueue.joined(wait_bins), pgqueue.joined(wait_counts), 0.99) as wait_p99,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.5) as run_p50,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.95) as run_p95,
           pgqueue.quantile(pgqueue.joined(run_bins), pgqueue.joined(run_counts), 0.99) as run_p99
    from pgqueue.series_hours where whole group by at;
comment on view pgqueue.insight_hours_all is 'What happened in each hour that is over, in all queues and tasks together.';

-- How deep queues are: what one worker finds in each minute. Of queues beyond a bound, those with the most jobs have rows.
create table pgqueue.series_depths (
    at           timestamptz not null,
    queue        text,
    blocked      bigint      not null,
    scheduled    bigint      not null,
    ready        bigint      not null,
    running      bigint      not null,
    dead         bigint      not null,
    oldest_ready float8,
    estimated    boolean     not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 20000);
comment on table pgqueue.series_depths is
    'How many jobs each queue had in each minute, by state. A queue without a row in a minute had none, or was beyond the bound.';
comment on column pgqueue.series_depths.at is 'The minute, or the hour.';
comment on column pgqueue.series_depths.blocked is 'Jobs that wait for something else than time and a worker.';
comment on column pgqueue.series_depths.scheduled is 'Jobs that are not due.';
comment on column pgqueue.series_depths.ready is 'Jobs that a worker may start.';
comment on column pgqueue.series_depths.running is 'Jobs that run.';
comment on column pgqueue.series_depths.dead is 'Dead jobs.';
comment on column pgqueue.series_depths.queue is 'Null: all queues together.';
comment on column pgqueue.series_depths.oldest_ready is 'For how many seconds the job that waited longest had been ready; null: none was.';
comment on column pgqueue.series_depths.estimated is 'Whether the numbers are scaled from a sample of the tables.';
-- Of all workers that come to a minute, the one that adds its row of all queues adds the others.
create unique index series_depths_at on pgqueue.series_depths (at, queue) nulls not distinct;
create index series_depths_queue on pgqueue.series_depths (queue, at);

create table pgqueue.series_depth_hours (like pgqueue.series_depths including defaults including comments including storage);
comment on table pgqueue.series_depth_hours is 'The highest numbers of each hour that is over, as in series_depths.';
create unique index series_depth_hours_at on pgqueue.series_depth_hours (at, queue) nulls not distinct;
create index series_depth_hours_queue on pgqueue.series_depth_hours (queue, at);
