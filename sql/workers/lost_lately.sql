-- workers/lost_lately: the workers that were lost since an instant, the last one first, and how many of their jobs were taken over.
-- index: former_workers_lost
-- locks: none
-- run by: Insight.health
-- rights: monitor
-- why: takes leave a row each, so only those of lost workers are in the index
select host || coalesce(':' || pid, ''), ended_at, lost_jobs from pgqueue.former_workers
where lost_jobs is not null and ended_at > coalesce(%(now)s::timestamptz, now()) - %(within)s::interval
order by ended_at desc limit %(limit)s::integer
