-- queues/age: raise the priority of ready jobs that have waited for long, where jobs of higher priority are ready; how many.
-- index: jobs_ready, jobs_pkey
-- locks: the raised rows; rows that others hold locked are skipped
-- run by: worker upkeep, drain of a test
-- why: nothing is kept of a job's age. A job is to have at least the priority that its wait is worth, so those of one priority
--      that are to be raised are the first ones of that priority in jobs_ready, and of each no more are read than are
--      raised. The highest priority of a queue is left alone: its jobs are the next ones anyway
with recursive clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
),
ageing as materialized (
    select name, extract(epoch from ageing)::float8 as every, coalesce(ageing_to, 100) as most
    from pgqueue.queues
    where ageing is not null
),
level (name, rank, place) as (  -- the priorities of ready jobs, the highest first
    select name, (select -ready.priority from pgqueue.jobs as ready
                  where ready.queue = ageing.name and ready.status = 'ready'
                  order by -ready.priority, ready.run_at, ready.id limit 1), 1
    from ageing
    union all
    select name, (select -ready.priority from pgqueue.jobs as ready
                  where ready.queue = level.name and ready.status = 'ready' and -ready.priority > level.rank
                  order by -ready.priority, ready.run_at, ready.id limit 1), place + 1
    from level
    where rank is not null
),
due as (
    select job.id
    from clock cross join level join ageing using (name)
    cross join lateral (
        select ready.id from pgqueue.jobs as ready
        where ready.queue = level.name and ready.status = 'ready' and -ready.priority = level.rank
          and ready.run_at <= clock.now - pg_catalog.make_interval(secs => ageing.every * (greatest(-level.rank, 0) + 1))
        order by -ready.priority, ready.run_at, ready.id
        limit %(limit)s::integer
        for update skip locked
    ) as job
    where level.place > 1 and -level.rank < ageing.most
),
raised as (
    update pgqueue.jobs as job
    set priority = (
        select least(ageing.most, floor(extract(epoch from clock.now - greatest(job.run_at, '1900-01-01 00:00+00'))
                                        / ageing.every))::smallint
        from clock, ageing where ageing.name = job.queue)
    where job.id = any(array(select id from due))  -- no join: see complete
    returning job.id
)
select count(*) from raised
