-- workers/note_unknown_tasks: note tasks of claimed jobs that this worker does not run, where no other live worker runs them either.
-- index: unknown_tasks_pkey
-- locks: the rows of those tasks, in the order of their names, if none was noted in the last 10 seconds
-- run by: worker completer, before it returns the jobs
-- why: for a task that no worker met for an hour the time begins anew. A name that is too long for an index is not noted. A worker
--      that is quiet runs nothing
with met as (
    select queue, task, coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now
    from unnest(%(queues)s::text[], %(tasks)s::text[]) as met (queue, task)
    where pg_catalog.octet_length(queue) + pg_catalog.octet_length(task) <= 2000
),
former as (  -- whose jobs have gone
    delete from pgqueue.unknown_tasks as unknown
    where unknown.met_at < (select min(now) from met) - interval '1 day'
      and not exists (select from met where met.queue = unknown.queue and met.task = unknown.task)
)
insert into pgqueue.unknown_tasks as unknown (queue, task, since, met_at)
select queue, task, now, now from met
where not exists (
      select from pgqueue.unknown_tasks as noted
      where noted.queue = met.queue and noted.task = met.task and noted.met_at > met.now - interval '10 seconds')
  and not exists (
      select from pgqueue.workers as other
      where other.id <> %(worker)s::uuid and other.lease_until > met.now and other.quiet is not true
        and (other.tasks is null or met.task = any(other.tasks)) and pgqueue.serves(other.queues, met.queue))
order by 1, 2
on conflict (queue, task) do update
set met_at = excluded.met_at,
    since = case when unknown.met_at < excluded.met_at - interval '1 hour' then excluded.since else unknown.since end
