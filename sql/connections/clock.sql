-- connections/clock: what time the database has.
-- index: none
-- locks: none
-- run by: PgQueue.enqueue_many
select coalesce(%(now)s::timestamptz, now())
