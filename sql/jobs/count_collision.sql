-- jobs/count_collision: count a rejected enqueue on the job that holds the key.
-- index: jobs_unique_key, unique_holds_pkey
-- locks: with a period, the key's row in unique_holds; then that job's row
-- run by: Task.enqueue
-- why: enqueuers of a key with a period lock its hold before its job. For a job that is claimed meanwhile may give up its key,
--      but stays locked by the enqueuer that waited for it, which then wants the hold; and the enqueuer that has the hold may
--      wait for that job. Where a waiting job takes the new enqueue's contents, only a running one rejects it
with held as materialized (
    select from pgqueue.unique_holds where %(period)s::interval is not null and unique_key = %(unique_key)s::text
    for no key update
)
update pgqueue.jobs set collisions = collisions + 1
where unique_key = %(unique_key)s::text and (%(rejects)s::boolean or status = 'running') and (select count(*) from held) >= 0
returning id
