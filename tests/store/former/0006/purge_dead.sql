-- purge_dead: forget the dead jobs that match.
-- index: dead_jobs_pkey (by id), else the whole table
-- locks: the forgotten rows, in order of their ids, as revive does: so the two never wait for each other in a circle
-- run by: PgQueue.purge_dead
with doomed as materialized (
    select id from pgqueue.dead_jobs
    where (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
      and (%(task)s::text is null or task = %(task)s::text)
      and (%(queue)s::text is null or queue = %(queue)s::text)
      and (%(before)s::timestamptz is null or died_at < %(before)s::timestamptz)
      and (%(error)s::text is null or errors -> -1 ->> 'type' = %(error)s::text
           or right(errors -> -1 ->> 'type', length(%(error)s::text) + 1) = '.' || %(error)s::text)
    order by id
    for update
)
delete from pgqueue.dead_jobs
where id in (select id from doomed)
returning id
