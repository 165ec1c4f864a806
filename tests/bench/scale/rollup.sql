-- rollup: roll up all ended jobs by queue, task and hour in plain SQL, as `pgqueue pipeline rollup` does with Spark.
select queue, task, date_trunc('hour', ended_at at time zone 'UTC') at time zone 'UTC' as hour, count(*) as jobs,
       count(*) filter (where outcome = 'succeeded'), count(*) filter (where outcome = 'cancelled'),
       count(*) filter (where outcome = 'dead'), sum(attempts)::bigint,
       percentile_disc(%(ranks)s::float8[]) within group (order by wait),
       percentile_disc(%(ranks)s::float8[]) within group (order by run)
from (
    select queue, task, outcome, finished_at as ended_at, attempts,
           started_at - run_at as waited, finished_at - started_at as ran
    from pgqueue.job_history
    union all
    select queue, task, 'dead', died_at, attempts, started_at - run_at, died_at - started_at from pgqueue.dead_jobs
) as ended
cross join lateral (
    -- greatest ignores a null: a job that never started would have waited 0 s
    select case when waited is not null then greatest(extract(epoch from waited), 0)::float8 end as wait,
           case when ran is not null then greatest(extract(epoch from ran), 0)::float8 end as run
) as seconds
group by queue, task, hour
