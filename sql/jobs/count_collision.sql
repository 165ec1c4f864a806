-- jobs/count_collision: count a rejected enqueue on the job that holds the key.
-- index: none: count_collision uses jobs_unique_key and unique_holds_pkey
-- locks: with a period, the key's row in unique_holds; then that job's row
-- run by: Task.enqueue
-- rights: producer
select id from pgqueue.count_collision(%(unique_key)s::text, %(period)s::interval is not null, %(rejects)s::boolean) as id where id is not null
