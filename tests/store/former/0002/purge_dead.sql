-- purge_dead: forget the dead jobs that match.
-- index: dead_jobs_pkey (by id), else the whole table
-- locks: the forgotten rows
-- run by: PgQueue.purge_dead
delete from pgqueue.dead_jobs
where (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
  and (%(task)s::text is null or task = %(task)s::text)
  and (%(queue)s::text is null or queue = %(queue)s::text)
  and (%(before)s::timestamptz is null or died_at < %(before)s::timestamptz)
returning id
