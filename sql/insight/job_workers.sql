-- insight/job_workers: the workers that ran attempts of a job, as far as they are known: who they are, and whether they live.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id, former_workers_pkey
-- locks: none
-- run by: Insight.story
-- rights: reader
-- why: by each id, since the planner would read all former workers to join them
with job as (
    select worker_id, case when pg_catalog.jsonb_typeof(errors) = 'array' then errors else '[]' end as errors
    from pgqueue.all_jobs where id = %(id)s::bigint
),
ran as (
    select worker_id as id from job where worker_id is not null
    union
    select (error ->> 'worker')::uuid from job cross join pg_catalog.jsonb_array_elements(job.errors) as error
    where error ->> 'worker' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
)
select ran.id, coalesce(known.host, former.host), coalesce(known.pid, former.pid),
       coalesce(known.lease_until > coalesce(%(now)s::timestamptz, now()), false) as alive
from ran
left join lateral (select host, pid, lease_until from pgqueue.workers where id = ran.id limit 1) as known on true
left join lateral (select host, pid from pgqueue.former_workers where id = ran.id limit 1) as former on true
where coalesce(known.host, former.host) is not null
