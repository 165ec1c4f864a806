-- queues/note: write down what an operator did.
-- index: none
-- locks: none beyond the new row
-- run by: the plans that change queues
insert into pgqueue.audit (said_by, action, target, details, jobs)
values (%(by)s::text, %(action)s::text, %(target)s::text, jsonb_object(%(names)s::text[], %(values)s::text[]), %(jobs)s::bigint)
