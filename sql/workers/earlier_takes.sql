-- workers/earlier_takes: how many takes wait for jobs of the same queues, and have waited for longer than this one.
-- index: none
-- locks: none
-- run by: a take that waits, when it was notified
-- rights: monitor
-- why: a take that waits for some of these queues only does not count: it may have no use for the job that has come
select count(*)
from pgqueue.workers as mine
join pgqueue.workers as other on (other.started_at, other.id) < (mine.started_at, mine.id)
where mine.id = %(worker)s::uuid and other.idle and other.minimum is null
  and other.lease_until > coalesce(%(now)s::timestamptz, now())
  and (other.queues is null or mine.queues <@ other.queues)
  and not exists (select from unnest(other.queues) as one (name)
                  where starts_with(one.name, '!') and (mine.queues is null or one.name <> all(mine.queues)))
