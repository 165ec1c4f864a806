-- counts: how many jobs of each queue are in each state, the ended ones left out.
-- index: none: reads all live and dead jobs
-- locks: none
-- run by: PgQueue.counts
select coalesce(live.queue, known.name), coalesce(live.state, ''), coalesce(live.count, 0), known.paused_at is not null
from (select queue, status as state, count(*) from pgqueue.jobs group by queue, status
      union all
      select queue, 'dead', count(*) from pgqueue.dead_jobs group by queue) as live
full join pgqueue.queues as known on known.name = live.queue
order by 1, 2
