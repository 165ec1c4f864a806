-- limits/keys: how many places of each key of one limit are taken, how many of those a lost worker holds, and how many jobs wait. A job that keeps its place counts as running, but not in its queue as a whole.
-- index: jobs_running_in_lanes, jobs_lanes (kept places: it reads the scheduled jobs)
-- locks: none
-- run by: Insight.limit
-- rights: monitor
-- why: counted from the jobs themselves, as claims count them; it reads all jobs that run or wait under limits. There may be
--      100,000 keys: they are summed up here, since Python takes 2 s to do it
select key, sum(running * places)::bigint, sum(lost * places)::bigint, sum(waiting)::bigint
from (select job.queue, job.lane, count(*) as running,
             count(*) filter (where ((select lease_until from pgqueue.workers where id = job.worker_id)
                                     > coalesce(%(now)s::timestamptz, now())) is not true) as lost,
             0 as waiting
      from pgqueue.jobs as job where job.status = 'running' and job.lane is not null and job.worker_id is not null
      group by job.queue, job.lane
      union all
      select '', lane, count(*), 0, 0 from pgqueue.jobs
      where status = 'scheduled' and place_at is not null group by lane
      union all
      select queue, lane, 0, 0, count(*) from pgqueue.jobs where in_lane group by queue, lane) as counted
cross join lateral (
    select regexp_replace(key, ' \*[1-9][0-9]{0,6}$', '') as key, split_part(key, ' ', 1) as name,
           coalesce(substring(key from ' \*([1-9][0-9]{0,6})$')::integer, 1) as places
    from string_to_table(lane, E'\n') as key
    union all
    select 'queue:' || queue, 'queue:' || queue, 1) as of
where name = %(name)s::text
group by key
