-- jobs/block: block waiting jobs until each reason is removed; the ids of the jobs that are blocked now.
-- index: jobs_pkey
-- locks: those jobs' rows
-- run by: the plan that enqueues jobs which have to wait, in the same transaction
with blocked as (
    update pgqueue.jobs set status = 'blocked', in_lane = null
    where id = any(%(ids)s::bigint[]) and (status in ('scheduled', 'ready') or in_lane)
    returning id
),
noted as (
    insert into pgqueue.waits (waits_for, job_id)
    select reason, id from blocked cross join unnest(%(reasons)s::text[]) as reason
)
select id from blocked
