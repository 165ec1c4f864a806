-- next_queues: the next queues in which ready jobs stand, from one name on, found by skipping through the index.
-- index: jobs_ready
-- locks: none
-- run by: workers that serve all queues and know of too many to name them
with recursive line (queue, place) as (
    select first.queue, 1
    from (
        (select queue from pgqueue.jobs
         where status = 'ready' and %(after)s::text is null
         order by queue limit 1)
        union all
        (select queue from pgqueue.jobs
         where status = 'ready' and queue > %(after)s::text
         order by queue limit 1)
    ) as first
    union all
    select next.queue, line.place + 1
    from line cross join lateral (
        select queue from pgqueue.jobs
        where status = 'ready' and queue > line.queue
        order by queue limit 1
    ) as next
    where line.place < %(limit)s::integer
)
select queue from line
