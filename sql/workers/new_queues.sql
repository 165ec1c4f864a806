-- workers/new_queues: some queues in which ready jobs stand, other than those known already, found by skipping through the index.
-- index: jobs_ready
-- locks: none
-- run by: workers and takes that serve all queues
-- rights: monitor
-- why: known queues are jumped over, and with them the entries of jobs that are gone (while a snapshot is held open
--      elsewhere, they stay in the index). The queue that '' names stands before all gaps
with recursive line (queue, before, known) as (
    select name, lead(name) over (order by name), true
    from unnest(array_append(%(known)s::text[], '')) as name
    union all
    select next.queue, line.before, false
    from line cross join lateral (
        (select queue from pgqueue.jobs
         where status = 'ready' and queue > line.queue and queue < line.before
         order by queue limit 1)
        union all
        (select queue from pgqueue.jobs
         where status = 'ready' and queue > line.queue and line.before is null
         order by queue limit 1)
    ) as next
)
(select '' as queue from pgqueue.jobs where status = 'ready' and queue = '' and '' <> all(%(known)s::text[]) limit 1)
union all
(select queue from line where not known limit %(limit)s::integer)
