-- insight/counts: how many jobs of each queue are in each state, the ended ones left out; and which of them no worker knew the task of.
-- index: none: reads all live and dead jobs
-- locks: none
-- run by: Insight.counts
-- rights: monitor
select coalesce(live.queue, known.name), coalesce(live.state, ''), coalesce(live.count, 0), known.paused_at is not null,
       coalesce(live.unknown, 0), coalesce(live.unknown_tasks, '{}'), live.unknown_since
from (select queue, state, sum(count)::bigint as count, (sum(count) filter (where task is not null))::bigint as unknown,
             array_agg(task order by task) filter (where task is not null) as unknown_tasks, min(since) as unknown_since
      from (select queue, status as state, case when unknown_since is not null then task end as task, count(*),
                   min(unknown_since) as since
            from pgqueue.jobs group by 1, 2, 3) as by_task
      group by queue, state
      union all
      select queue, 'dead', count(*), 0, null, null from pgqueue.dead_jobs group by queue) as live
full join pgqueue.queues as known on known.name = live.queue
order by 1, 2
