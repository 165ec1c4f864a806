-- insight/run_list: runs, the latest first: what was written, the ids of their jobs, and how many of these live, in which state, or are dead.
-- index: none: sink_writes_run of one run, and jobs_pkey and dead_jobs_pkey by the ids of each
-- locks: none
-- run by: Insight.runs, Insight.run, pgqueue.spark.apply
-- rights: monitor
-- why: jobs that have ended are not counted: of a million, they would take a second
with listed as materialized (
    select run, array_agg(distinct task order by task) as tasks, count(*) as writes, min(written_at) as first_at,
           max(written_at) as last_at, sum(rows)::bigint as rows, sum(rejected)::bigint as rejected,
           sum(refused)::bigint as refused, sum(changed)::bigint as changed, pgqueue.jobs_of_run(run) as ids
    from pgqueue.sink_writes
    where run is not null and repeats is null and (%(run)s::text is null or run = %(run)s::text)
    group by run
    order by max(written_at) desc
    limit %(limit)s::integer
)
select run, tasks, writes, first_at, last_at, rows, rejected, refused, changed, ids::text,
       (select coalesce(sum(upper(part) - lower(part)), 0)::bigint from unnest(ids) as part),
       live.blocked, live.scheduled, live.ready, live.running, dead.dead, clock_timestamp()
from listed,
     lateral (select count(*) filter (where status = 'blocked') as blocked, count(*) filter (where status = 'scheduled') as scheduled,
                     count(*) filter (where status = 'ready') as ready, count(*) filter (where status = 'running') as running
              from pgqueue.jobs where id >= lower(ids) and id < upper(ids) and id <@ ids) as live,
     lateral (select count(*) as dead from pgqueue.dead_jobs
              where id >= lower(ids) and id < upper(ids) and id <@ ids) as dead
order by last_at desc
