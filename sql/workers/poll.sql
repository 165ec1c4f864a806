-- workers/poll: promote due jobs; tell when the next job, schedule and deadline are due, and of lost workers, ready jobs and seldom work.
-- index: jobs_scheduled, jobs_ready, jobs_lanes, jobs_expires_at, schedules_next, signals_unsettled, waits_until
-- locks: the promoted rows, skipping locked ones
-- run by: worker upkeep, take
-- rights: worker
-- why: one statement for all that an idle worker asks, and every line is looked at from a mark, past the entries
--      of jobs that are gone (while a snapshot is held open elsewhere, they stay in the index). promote_due sets aside
--      what the database refuses to promote; and PostgreSQL 15 cannot subtract from 'infinity', so the next job is at
--      most a day away
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
)
select due.promoted, due.refused,
       (select extract(epoch from least(run_at, clock.now + interval '1 day') - clock.now)::float8 from pgqueue.jobs
        where status = 'scheduled' and run_at > clock.now order by run_at limit 1),
       exists (select from pgqueue.workers where lease_until < clock.now) or exists (select from pgqueue.lost_workers),
       exists (
           select from unnest(%(queues)s::text[], %(mark_ranks)s::smallint[],
                              %(mark_run_ats)s::timestamptz[], %(mark_ids)s::bigint[])
                as line (queue, mark_rank, mark_run_at, mark_id)
           cross join lateral (
               select from pgqueue.jobs as ready
               where ready.queue = line.queue and ready.status = 'ready'
                 and (-ready.priority, ready.run_at, ready.id) > (line.mark_rank, line.mark_run_at, line.mark_id)
               order by -ready.priority, ready.run_at, ready.id
               limit 1
           ) as job
       ) or exists (  -- in the queue that '' names, which stands before the first gap
           select from pgqueue.jobs
           where %(elsewhere)s::boolean and '' <> all(%(queues)s::text[]) and status = 'ready' and queue = ''
       ) or exists (  -- in any other queue: between two of these, or after the last
           select from (select name as after, lead(name) over (order by name) as before
                        from unnest(array_append(%(queues)s::text[], '')) as name) as gap
           cross join lateral (
               (select from pgqueue.jobs
                where status = 'ready' and queue > gap.after and queue < gap.before limit 1)
               union all
               (select from pgqueue.jobs
                where status = 'ready' and queue > gap.after and gap.before is null limit 1)
           ) as job
           where %(elsewhere)s::boolean
       ),
       pgqueue.tell_of_idle_workers(),
       (select extract(epoch from next_at - clock.now)::float8 from pgqueue.schedules
        where paused_at is null and error is null order by next_at limit 1),
       exists (select from pgqueue.flow_work),
       case when exists (select from pgqueue.signals where not settled) then 0.0
            else (select extract(epoch from greatest(least(until, clock.now + interval '1 day'), clock.now) - clock.now)::float8
                  from pgqueue.waits where until is not null order by until limit 1) end,
       array(select name from pgqueue.queues where timeout is not null order by name),
       array(select extract(epoch from timeout)::float8 from pgqueue.queues where timeout is not null order by name),
       array(select substr(name, 7) from pgqueue.limits where starts_with(name, 'queue:') order by name),
       exists (select from pgqueue.limits where starts_with(name, ' ') and most > 0),
       exists (select from pgqueue.jobs where in_lane),
       array(
           select seldom.work
           from (values ('expire', exists (select from pgqueue.jobs where expires_at <= clock.now and status <> 'running')),
                        ('age', exists (select from pgqueue.queues where ageing is not null)),
                        ('alerts', exists (select from pgqueue.alerts where next_at <= clock.now)),
                        ('workers', exists (select from pgqueue.workers
                                            where lease_until > clock.now
                                              and extract(epoch from clock.now - pgqueue.as_datetime(looked_at)) > look_within))
                ) as seldom (work, is_due)
           where %(seldom)s::boolean and seldom.is_due
       )
from clock cross join lateral pgqueue.promote_due(clock.now, %(limit)s::integer) as due
