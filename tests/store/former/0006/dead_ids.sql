-- dead_ids: the dead jobs that match, the lowest id first.
-- index: dead_jobs_pkey: it is read until enough are found
-- locks: none
-- run by: PgQueue.retry_dead
select id from pgqueue.dead_jobs
where id > %(after)s::bigint
  and (%(task)s::text is null or task = %(task)s::text)
  and (%(queue)s::text is null or queue = %(queue)s::text)
  and (%(before)s::timestamptz is null or died_at < %(before)s::timestamptz)
  and (%(error)s::text is null or errors -> -1 ->> 'type' = %(error)s::text
       or right(errors -> -1 ->> 'type', length(%(error)s::text) + 1) = '.' || %(error)s::text)
order by id limit %(limit)s::integer
