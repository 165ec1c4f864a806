-- made_up/rollup: roll up all ended jobs by queue, task and hour in plain SQL, as `pgqueue pipeline rollup` does with Spark.
-- index: none
-- locks: none
-- run by: pgqueue pipeline scale
select queue, task, date_trunc('hour', ended_at at time zone 'UTC') at time zone 'UTC' as hour, count(*) as jobs,
       count(*) filter (where outcome = 'succeeded'), count(*) filter (where outcome = 'cancelled'),
       count(*) filter (where outcome = 'dead'), sum(attempts)::bigint,
       percentile_disc(%(ranks)s::float8[]) within group (order by wait),
       percentile_disc(%(ranks)s::float8[]) within group (order by run)
from (
    select queue, task, outcome, finished_at as ended_at, attempts,
           greatest(extract(epoch from started_at - run_at), 0)::float8 as wait,
           greatest(extract(epoch from finished_at - started_at), 0)::float8 as run
    from pgqueue.job_history
    union all
    select queue, task, 'dead', died_at, attempts, greatest(extract(epoch from started_at - run_at), 0)::float8,
           greatest(extract(epoch from died_at - started_at), 0)::float8
    from pgqueue.dead_jobs
) as ended
group by queue, task, hour
