-- bulk/state: how far an operation on many jobs is.
-- index: audit_pkey
-- locks: none
-- run by: QueueControl.resume_operation
-- rights: monitor
select action, details::text, after_id, up_to, later, counts::text, ended_at
from pgqueue.audit
where id = %(operation)s::bigint
