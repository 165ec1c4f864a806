-- insight/errors: the last dead jobs that match, by task and error: how many, in which queues, the first and the last.
-- index: dead_jobs_ended_in, dead_jobs_pkey
-- locks: none
-- run by: Insight.errors
-- rights: reader
-- why: UUIDs and digits are taken out of messages, so that 'no order 7' and 'no order 12' are one error, and jobs lost by two
--      workers, too. An error may be long, and is read only of the jobs that match
with last_dead as (
    select id, queue, task, ended_in from pgqueue.dead_jobs order by ended_in desc limit %(looked_at)s::integer
),
matching as (
    select id from last_dead
    where (%(queue)s::text is null or queue = %(queue)s::text) and (%(task)s::text is null or task = %(task)s::text)
    order by ended_in desc limit %(counted)s::integer
),
job as (
    select id, task, queue, reason, pgqueue.as_datetime(died_at) as died_at, errors -> -1 as error
    from pgqueue.dead_jobs where id = any(array(select id from matching))
),
said as materialized (  -- else each error is read again for each of its fields
    select id, task, queue, reason, died_at, error ->> 'type' as type,
           case when error ->> 'encoded' is null then left(split_part(error ->> 'message', E'\n', 1), 500) end as line
    from job offset 0
)
select task, type, reason, (array_agg(line order by died_at desc, id desc))[1], count(*),
       (array_agg(distinct queue))[1:10], min(died_at), max(died_at), (array_agg(id order by died_at desc, id desc))[1],
       (select count(*) from last_dead), (select count(*) from said)
from said
group by task, type, reason, regexp_replace(line, '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+', '', 'gi')
order by count(*) desc, max(died_at) desc, task, type
limit %(limit)s::integer
