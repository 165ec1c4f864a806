-- dead_ids: the dead jobs that match, oldest first.
-- index: none: reads all dead jobs
-- locks: none
-- run by: PgQueue.retry_dead
select id from pgqueue.dead_jobs
where (%(task)s::text is null or task = %(task)s::text)
  and (%(queue)s::text is null or queue = %(queue)s::text)
  and (%(before)s::timestamptz is null or died_at < %(before)s::timestamptz)
order by id
