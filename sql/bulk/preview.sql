-- bulk/preview: how many jobs, live or dead, match: by queue, task and state, with the lowest id of each; most first.
-- index: none: reads all live jobs, or all dead ones
-- locks: none
-- run by: QueueControl.jobs, QueueControl.dead
-- rights: reader
select queue, task, state, asked, count(*), min(id)
from (select id, false as dead, queue::text, task::text, status::text as state, status = 'running' and cancel_requested as asked,
             created_at, null::timestamptz as died_at, priority::integer, meta::jsonb, errors::jsonb, args::json, null::text as reason
      from pgqueue.jobs
      union all
      select id, true, queue, task, 'dead', false, created_at, died_at, priority::integer, meta, errors, args::json, reason
      from pgqueue.dead_jobs) as job
where dead = %(dead)s::boolean
  and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
  and (%(run)s::text is null or id <@ (select pgqueue.jobs_of_run(%(run)s::text)))
  and (%(queue)s::text is null or queue like %(queue)s::text)
  and (%(task)s::text is null or task like %(task)s::text)
  and (%(states)s::text[] is null or state = any(%(states)s::text[]))
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
  and case when %(args)s::jsonb is null then true else pgqueue.as_jsonb(args) @> %(args)s::jsonb end
group by queue, task, state, asked
order by count(*) desc, min(id)
