-- insight/lanes: how many places of each limit are taken, how many of those a lost worker holds, and how many jobs wait on some pages of the table. A job that keeps its place counts as running, but not in its queue as a whole.
-- index: jobs_running_in_lanes (kept places: jobs_kept_places, where there are more jobs than these)
-- locks: none
-- run by: Insight.limits, Insight.limit
-- rights: monitor
-- why: to count all jobs that wait reads a large table; a sample tells about how many. There may be 100,000 lanes, so
--      they are summed up here. Every array contains the empty one: so kept places are found by their index
select name, sum(running * places)::bigint, sum(lost * places)::bigint, sum(waiting)::bigint,
       count(distinct key) filter (where running > 0)
from (select job.queue, job.lane, count(*) as running,
             count(*) filter (where ((select lease_until from pgqueue.workers where id = job.worker_id)
                                     > coalesce(%(now)s::timestamptz, now())) is not true) as lost,
             0 as waiting
      from pgqueue.jobs as job where job.status = 'running' and job.lane is not null and job.worker_id is not null
      group by job.queue, job.lane
      union all
      select '', lane, 1, 0, 0 from pgqueue.jobs
      where place_at is not null and string_to_array(lane, E'\n') @> '{}'
      union all
      select queue, lane, 0, 0, 1 from pgqueue.jobs tablesample system (%(percent)s::real)
      where in_lane) as counted
cross join lateral (
    select split_part(key, ' ', 1) as name, coalesce(substring(key from ' \*([1-9][0-9]{0,6})$')::integer, 1) as places,
           regexp_replace(key, ' \*[1-9][0-9]{0,6}$', '') as key
    from string_to_table(lane, E'\n') as key
    union all
    select 'queue:' || queue, 1, 'queue:' || queue) as of
group by name
