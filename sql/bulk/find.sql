-- bulk/find: of the next jobs, live or dead, those that match: ids, versions, which are in flows; after which id to go on, null at the end.
-- index: jobs_pkey, dead_jobs_pkey
-- locks: none: bulk/lock and bulk/lock_dead take those whose version is the same
-- run by: QueueControl.jobs, QueueControl.dead
-- rights: reader
-- why: a portion of the table is read from its lowest id on, so that a filter that few jobs match holds no snapshot for long
with looked as materialized (
    select id, version, coalesce(flags & 2 = 2, false) as in_flow, coalesce(
               (%(queue)s::text is null or queue like %(queue)s::text)
               and (%(task)s::text is null or task like %(task)s::text)
               and (%(states)s::text[] is null or state = any(%(states)s::text[])) and not asked
               and (%(enqueued_after)s::timestamptz is null or created_at >= %(enqueued_after)s::timestamptz)
               and (%(enqueued_before)s::timestamptz is null or created_at < %(enqueued_before)s::timestamptz)
               and (%(died_before)s::timestamptz is null or died_at < %(died_before)s::timestamptz)
               and (%(min_priority)s::integer is null or priority >= %(min_priority)s::integer)
               and (%(max_priority)s::integer is null or priority <= %(max_priority)s::integer)
               and (%(not_queue)s::text is null or queue <> %(not_queue)s::text)
               and (%(not_priority)s::integer is null or priority <> %(not_priority)s::integer)
               and (%(meta)s::jsonb is null or meta @> %(meta)s::jsonb)
               and (%(error)s::text is null or errors -> -1 ->> 'type' = %(error)s::text
                    or right(errors -> -1 ->> 'type', length(%(error)s::text) + 1) = '.' || %(error)s::text)
               and (%(message)s::text is null or strpos(errors -> -1 ->> 'message', %(message)s::text) > 0)
               and (%(error_group)s::text is null or {error group} = %(error_group)s::text)
               and case when %(args)s::jsonb is null then true else pgqueue.as_jsonb(args) @> %(args)s::jsonb end, false) as matches
    from (select id, xmin::text as version, flags, false as dead, queue::text, task::text, status::text as state,
                 status = 'running' and cancel_requested as asked, created_at, null::timestamptz as died_at,
                 priority::integer, meta::jsonb, errors::jsonb, args::json, null::text as reason
          from pgqueue.jobs
          union all
          select id, xmin::text, flags, true, queue, task, 'dead', false, created_at, died_at, priority::integer, meta, errors, args::json, reason
          from pgqueue.dead_jobs) as job
    where dead = %(dead)s::boolean and id <= %(up_to)s::bigint
      and id > greatest(%(after)s::bigint, lower((select pgqueue.jobs_of_run(%(run)s::text))) - 1)
      and (%(run)s::text is null or id <@ (select pgqueue.jobs_of_run(%(run)s::text)))
      and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
    order by id limit %(looked)s::integer
)
select (select max(id) from looked having count(*) = %(looked)s::integer),
       coalesce(array_agg(id order by id) filter (where matches), '{}'),
       coalesce(array_agg(version order by id) filter (where matches), '{}'),
       coalesce(array_agg(in_flow order by id) filter (where matches), '{}')
from looked
