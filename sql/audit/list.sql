-- audit/list: what operators did, newest first.
-- index: audit_pkey
-- locks: none
-- run by: Insight.audit
-- rights: monitor
select id, at, said_by, action, target, details::text, jobs, counts::text, ended_at, after_id is not null
from pgqueue.audit
where id < %(before)s::bigint
order by id desc limit %(limit)s::integer
