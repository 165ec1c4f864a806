-- signals/drop: delete signals and deadlines that no job will ask for any more, some at a time; how many.
-- index: jobs_pkey, dead_jobs_pkey
-- locks: those rows, skipping locked ones
-- run by: worker upkeep
-- why: a dead job keeps its own, since it may be retried. Signals to keys are kept for 30 days; they name no job
with signals as (
    delete from pgqueue.signals where ctid = any(array(
        select ctid from pgqueue.signals
        where case when left(target, 4) = 'job:' then not exists (
                       select from pgqueue.jobs where id = substring(target from '[0-9]{1,18}')::bigint)
                   and not exists (select from pgqueue.dead_jobs where id = substring(target from '[0-9]{1,18}')::bigint)
                   when left(target, 5) = 'flow:' then not exists (
                       select from pgqueue.flows where id = substring(target from '[0-9]{1,18}')::bigint and ended_at is null)
                   else sent_at < coalesce(%(now)s::timestamptz, now()) - %(kept)s::interval end
        limit %(limit)s::integer for update skip locked))
    returning target
),
deadlines as (
    delete from pgqueue.deadlines where ctid = any(array(
        select ctid from pgqueue.deadlines as one
        where not exists (select from pgqueue.jobs where id = one.job_id)
          and not exists (select from pgqueue.dead_jobs where id = one.job_id)
        limit %(limit)s::integer for update skip locked))
    returning job_id
)
select greatest((select count(*) from signals), (select count(*) from deadlines))
