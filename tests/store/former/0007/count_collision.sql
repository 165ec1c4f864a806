-- count_collision: count a rejected enqueue on the job that holds the key.
-- index: jobs_unique_key
-- locks: that job's row
-- run by: Task.enqueue
update pgqueue.jobs set collisions = collisions + 1
where unique_key = %(unique_key)s::text
returning id
