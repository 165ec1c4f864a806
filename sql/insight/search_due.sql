-- insight/search_due: of the scheduled jobs behind an instant and an id, those that match, in the order in which they are due.
-- index: jobs_scheduled
-- locks: none
-- run by: Insight.due
-- rights: reader
-- why: a number of jobs is looked at, so that a filter that few jobs match does not read them all. Arguments are read last
with looked as materialized (
    select id, run_at from pgqueue.jobs
    where status = 'scheduled' and run_at >= %(run_at)s::timestamptz and (run_at > %(run_at)s::timestamptz or id > %(id)s::bigint)
    order by run_at, id limit %(looked)s::integer
),
matching as (
    select job.id, job.run_at from looked join pgqueue.jobs as job on job.id = looked.id
    where job.status = 'scheduled'
      and (%(queue)s::text is null or job.queue like %(queue)s::text)
      and (%(task)s::text is null or job.task like %(task)s::text)
      and (%(enqueued_after)s::timestamptz is null or job.created_at >= %(enqueued_after)s::timestamptz)
      and (%(enqueued_before)s::timestamptz is null or job.created_at < %(enqueued_before)s::timestamptz)
      and (%(error)s::text is null or job.errors::jsonb -> -1 ->> 'type' = %(error)s::text
           or right(job.errors::jsonb -> -1 ->> 'type', length(%(error)s::text) + 1) = '.' || %(error)s::text)
      and case when %(args)s::jsonb is null then true else pgqueue.as_jsonb(job.args::json) @> %(args)s::jsonb end
    order by looked.run_at, looked.id limit %(limit)s::integer
)
select coalesce((select array_agg(id order by run_at, id) from matching), '{}') as ids,
       (select pgqueue.as_datetime(max(run_at)) from looked having count(*) = %(looked)s::integer) as looked_to,
       (select id from looked order by run_at desc, id desc limit 1) as looked_id
