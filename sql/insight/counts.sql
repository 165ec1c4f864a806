-- insight/counts: how many jobs of each queue are in each state, the ended ones left out; and which of them have a task that no live worker runs.
-- index: none: reads all live and dead jobs
-- locks: none
-- run by: Insight.counts
-- rights: monitor
select coalesce(live.queue, known.name), coalesce(live.state, ''), coalesce(live.count, 0), known.paused_at is not null,
       coalesce(live.unknown, 0), coalesce(live.unknown_tasks, '{}'), live.unknown_since
from (select queue, state, sum(count)::bigint as count, (sum(count) filter (where since is not null))::bigint as unknown,
             array_agg(task order by task) filter (where since is not null) as unknown_tasks, min(since) as unknown_since
      from (select job.queue, job.status as state, unknown.task, pgqueue.as_datetime(unknown.since) as since, count(*)
            from pgqueue.jobs as job
            left join pgqueue.unknown_tasks as unknown
                 on unknown.queue = job.queue and unknown.task = job.task and (job.status = 'ready' or job.in_lane)
                    and unknown.met_at > now() - interval '5 minutes'
            group by 1, 2, 3, 4) as by_task
      group by queue, state
      union all
      select queue, 'dead', count(*), 0, null, null from pgqueue.dead_jobs group by queue) as live
full join pgqueue.queues as known on known.name = live.queue
order by 1, 2
