-- find_hold: the ended job for whose period a unique key is still held.
-- index: unique_holds_pkey
-- locks: none
-- run by: Task.enqueue
select job_id from pgqueue.unique_holds
where unique_key = %(unique_key)s::text and held_until > coalesce(%(now)s::timestamptz, now())
