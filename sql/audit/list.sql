-- audit/list: what operators did that matches every filter given, newest first.
-- index: audit_pkey
-- locks: none
-- run by: Insight.audit
-- rights: monitor
select id, at, said_by, action, target, details::text, jobs, counts::text, ended_at, after_id is not null
from pgqueue.audit
where id < %(before)s::bigint
  and (%(by)s::text is null or said_by = %(by)s::text) and (%(action)s::text is null or action = %(action)s::text)
  and (%(target)s::text is null or target = %(target)s::text)
  and (%(since)s::timestamptz is null or at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or at < %(until)s::timestamptz)
order by id desc limit %(limit)s::integer
