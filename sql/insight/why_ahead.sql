-- insight/why_ahead: how many ready jobs of its queue come before a job, among those of some of the table's pages, chosen at random.
-- index: jobs_pkey
-- locks: none
-- run by: PgQueue.why, of a job that has more before it than are counted
-- rights: monitor
select count(*)
from (select queue, priority, run_at, id from pgqueue.jobs where id = %(id)s::bigint) as mine
join pgqueue.jobs as other tablesample system (%(percent)s::real)
  on other.queue = mine.queue and other.status = 'ready'
 and (-other.priority, other.run_at, other.id) < (-mine.priority, mine.run_at, mine.id)
