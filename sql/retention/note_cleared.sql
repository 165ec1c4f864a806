-- retention/note_cleared: note up to which day the history is cleared of jobs, of queues whose length and note are as they were read.
-- index: queues_pkey
-- locks: these queues' rows, and the row of the retention
-- run by: worker upkeep
with cleared as (
    select queue, length, cut, ((coalesce(%(now)s::timestamptz, now()) - length) at time zone 'UTC')::date as first_kept
    from unnest(%(queues)s::text[], %(lengths)s::interval[], %(cuts)s::date[]) as read (queue, length, cut)
    where length < '100000 days'
),
own as (
    update pgqueue.queues as known set history_cut = first_kept
    from cleared
    where known.name = queue and known.keep_history = length and known.history_cut is not distinct from cut and cut is distinct from first_kept
)
update pgqueue.retention as said set history_cut = first_kept
from cleared
where queue is null and said.history = length and said.history_cut is not distinct from cut and cut is distinct from first_kept
  and not exists (  -- the jobs of a queue that has given up its length were not looked at
      select from cleared as other left join pgqueue.queues as known on known.name = other.queue and known.keep_history > '0'
      where other.queue is not null and known.name is null)
