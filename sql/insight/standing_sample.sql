-- insight/standing_sample: how many live and dead jobs of each queue and state stand on some of the tables' pages, chosen at random.
-- index: none: reads the given share of each table, in percent
-- locks: none
-- run by: Insight.queues
-- rights: monitor
select queue, status, count(*) from pgqueue.jobs tablesample system (%(jobs)s::real) group by queue, status
union all
select queue, 'dead', count(*) from pgqueue.dead_jobs tablesample system (%(dead)s::real) group by queue
