-- limits/relane: take a limit's keys out of the lanes of some jobs, or give them another limit's name: how many, the last job that was looked at, and how many others have locked.
-- index: jobs_pkey
-- locks: those rows; rows that others hold locked are skipped
-- run by: queue.control.limits
-- why: jobs that run are changed, too: a retry puts them back into their lane. The keys stand in the order of task_limits.py, a
--      share last. A job whose lane has no key left is ready; one that has only its share
--      left waits for its turn among the shares
with found as (
    select id from pgqueue.jobs
    where id > %(after)s::bigint and lane is not null
      and %(name)s::text = any(array(select split_part(key, ' ', 1) from string_to_table(lane, E'\n') as key))
    order by id limit %(limit)s::integer
),
locked as (
    select job.id, job.lane from pgqueue.jobs as job where job.id = any(array(select id from found)) order by job.id for update skip locked
),
changed as (
    update pgqueue.jobs as job
    set lane = case when job.status = 'running' then coalesce(becomes.lane, '') else becomes.lane end,
        status = case when job.in_lane and becomes.lane is null then 'ready' else job.status end,
        in_lane = case when becomes.lane is not null then job.in_lane end,
        place_at = case when becomes.lane is not null then job.place_at end,
        claim_number = null  -- it runs under limits that no claim of it has locked
    from locked cross join lateral (
        select string_agg(key || coalesce(' *' || nullif(places, 1), ''), E'\n'
                          order by left(key, 1) = ' ', split_part(key, ' ', 1) collate "C", key collate "C") as lane
        from (select regexp_replace(key, ' \*[1-9][0-9]{0,6}$', '') as key,
                     max(coalesce(substring(key from ' \*([1-9][0-9]{0,6})$')::integer, 1)) as places
              from (select case when split_part(key, ' ', 1) <> %(name)s::text then key
                                else %(to)s::text || substr(key, length(%(name)s::text) + 1) end as key
                    from string_to_table(locked.lane, E'\n') as key) as named
              where key is not null
              group by 1) as kept
    ) as becomes
    where job.id = locked.id
    returning job.id
)
select (select count(*) from changed), (select max(id) from found), (select count(*) from found) - (select count(*) from locked)
