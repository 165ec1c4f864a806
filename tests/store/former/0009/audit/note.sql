-- audit/note: write down what an operator did.
-- index: none
-- locks: none beyond the new row
-- run by: the plans by which operators change queues, jobs and workers
insert into pgqueue.audit (said_by, action, target, details, jobs)
values (%(by)s::text, %(action)s::text, %(target)s::text, jsonb_object(%(names)s::text[], %(values)s::text[]), %(jobs)s::bigint)
