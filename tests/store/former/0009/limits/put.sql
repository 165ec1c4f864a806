-- limits/put: give new jobs their lanes, and what their starts cost; those that were ready wait in their lane from now on.
-- index: jobs_pkey
-- locks: those jobs' rows
-- run by: the plans that enqueue jobs of limited tasks, in the same transaction
-- why: a statement of its own, so that jobs without a lane are enqueued as if there were none
update pgqueue.jobs as job
set (lane, cost) = (
    select (%(lanes)s::text[])[place], (%(costs)s::integer[])[place]
    from (select pg_catalog.array_position(%(ids)s::bigint[], job.id) as place) as found)
where id = any(%(ids)s::bigint[]) and status <> 'running'
