-- queues/names: the queues there are: with live or dead jobs, with a row of their own, or served by a live worker by name.
-- index: none: reads all live and dead jobs
-- locks: none
-- run by: the plans that act on a pattern of names
-- rights: monitor
select name from pgqueue.queues
union select queue from pgqueue.jobs
union select queue from pgqueue.dead_jobs
union select entry from pgqueue.workers, unnest(queues) as entry where lease_until > now() and entry !~ '[!*]'
order by 1
