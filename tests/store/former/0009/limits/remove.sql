-- limits/remove: forget a limit that no code declares.
-- index: limits_pkey
-- locks: its row; a claim that has locked it is waited for
-- run by: queue.control.limits
delete from pgqueue.limits where name = %(name)s::text
