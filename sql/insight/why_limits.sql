-- insight/why_limits: the limits of one waiting job: what each says, how many places of its key are taken and the job takes, which jobs hold them, and the state of a rate.
-- index: jobs_pkey, jobs_running_in_lanes, jobs_kept_places, jobs_lanes, limits_pkey, rates_pkey
-- locks: none
-- run by: PgQueue.why, of a job in a lane, and of a ready one whose queue is limited
-- rights: monitor
-- why: counted from the jobs themselves, as claims count them. Jobs that wait are counted up to a number. A job that has a share
--      and no limit is one row without a limit
with mine as (
    select id, queue, lane, in_lane, coalesce(cost, 1) as cost, -priority as rank, run_at from pgqueue.jobs where id = %(id)s::bigint
),
key as (
    select regexp_replace(line, ' \*[1-9][0-9]{0,6}$', '') as text, split_part(line, ' ', 1) as name, place,
           coalesce(substring(line from ' \*([1-9][0-9]{0,6})$')::integer, 1) as places
    from mine, string_to_table(lane, E'\n') with ordinality as one (line, place)
    where line <> '' and left(line, 1) <> ' '
    union all
    select 'queue:' || queue, 'queue:' || queue, 1000, 1 from mine
),
named as (
    select key.*, said.most, said.every, said.burst, (select tat from pgqueue.rates where rates.key = key.text) as tat
    from key left join lateral (select * from pgqueue.limits where name = key.name offset 0) as said on true
    where said.name is not null or not starts_with(key.name, 'queue:')
),
held as (
    select id, queue, lane, worker_id, claimed_at
    from pgqueue.jobs where status = 'running' and lane is not null and worker_id is not null
    union all
    select id, null, lane, null, null from pgqueue.jobs
    where place_at is not null and string_to_array(lane, E'\n') && array(select text from key)
)
select named.name, named.text, named.most, named.every, named.burst, mine.cost, named.tat, named.places, counted.running, counted.ids, counted.workers,
       starts_with(named.name, 'queue:')
       or exists (select from pgqueue.limited_tasks where keys @> jsonb_build_array(jsonb_build_object('limit', named.name))),
       case when mine.in_lane then (
           select count(*) from (
               select from pgqueue.jobs as other
               where other.in_lane and other.queue = mine.queue and other.lane = mine.lane
                 and (-other.priority, other.run_at, other.id) < (mine.rank, mine.run_at, mine.id)
               limit %(most)s::integer) as before)
       end,
       case when mine.in_lane then (
           select count(*) from (
               select from pgqueue.jobs as other
               where other.in_lane and other.queue = mine.queue and other.lane < mine.lane limit %(most)s::integer) as before)
         + (select count(*) from (
               select from pgqueue.jobs as other
               where other.in_lane and other.queue = mine.queue and other.lane > mine.lane limit %(most)s::integer) as behind)
       end
from mine left join named on true
cross join lateral (
    select coalesce(sum(places), 0)::bigint as running, (array_agg(held.id order by held.claimed_at, held.id))[1:6] as ids,
           (array_agg((select host || ':' || pid from pgqueue.workers where workers.id = held.worker_id) order by held.claimed_at, held.id))[1:6]
               as workers
    from held cross join lateral (
        select 1 as places where 'queue:' || held.queue = named.text
        union all
        select coalesce(substring(line from ' \*([1-9][0-9]{0,6})$')::integer, 1) from string_to_table(held.lane, E'\n') as line
        where regexp_replace(line, ' \*[1-9][0-9]{0,6}$', '') = named.text) as taken
    where named.most is not null) as counted
order by named.place
