-- bulk/begin: write down that an operation on many jobs begins; its id, and up to which job it goes.
-- index: jobs_pkey, dead_jobs_pkey
-- locks: none beyond the new row
-- run by: QueueControl.jobs, QueueControl.dead
insert into pgqueue.audit (at, said_by, action, target, details, jobs, counts, after_id, later, up_to)
values (coalesce(%(now)s::timestamptz, now()), %(by)s::text, %(action)s::text, %(target)s::text, 
        jsonb_strip_nulls(jsonb_build_object('why', %(why)s::text)) || %(details)s::jsonb, 0, '{}', -1, '{}',
        coalesce(case when %(dead)s::boolean then (select max(id) from pgqueue.dead_jobs) else (select max(id) from pgqueue.jobs) end,
                 -1))
returning id, up_to
