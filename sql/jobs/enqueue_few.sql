-- jobs/enqueue_few: add some jobs without unique keys, all or none, with what their queues say where the jobs do not; the ids, in the order of the jobs; nothing: a queue is closed, or has a bound and the enqueuer does not know that there is room.
-- index: none: reads the queues that have settings, which are few
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
-- rights: producer
-- why: one statement in one message; COPY takes six, and tells no ids: they are taken before, and a producer that chose an id ahead of
--      the sequence would stop other programs' enqueues. So one that may choose none adds many jobs by this statement, too
with new as materialized (
    select {given: new.NAME}, {limited: new.NAME}, new.place, clock.now, due.run_at,
           coalesce(new.priority, setting.priority, 0) as priority,
           coalesce(new.max_attempts, setting.max_attempts, 25) as max_attempts,
           coalesce(new.expires_at, due.run_at + pg_catalog.make_interval(secs => new.expires_in)) as expires_at,
           setting.closed_at is not null or setting.backlog is not null and not %(room)s::boolean as is_refused
    from (select coalesce(%(now)s::timestamptz, now()) as now) as clock
    cross join unnest({given: %(NAME)s::TYPE[]}, {limited: %(NAME)s::TYPE[]}, %(priority)s::smallint[],
                      %(max_attempts)s::smallint[], %(run_at)s::timestamptz[], %(delay)s::float8[],
                      %(expires_at)s::timestamptz[], %(expires_in)s::float8[])
         with ordinality as new ({given}, {limited}, priority, max_attempts, run_at, delay, expires_at, expires_in, place)
    cross join lateral (
        select coalesce(new.run_at, clock.now + pg_catalog.make_interval(secs => new.delay), clock.now) as run_at) as due
    left join pgqueue.queues as setting on setting.name = new.queue
)
insert into pgqueue.jobs ({given}, {limited}, priority, status, run_at, max_attempts, expires_at, in_lane)
select {given}, {limited}, priority,
       case when run_at > now then 'scheduled' when lane is null then 'ready' else 'blocked' end, run_at, max_attempts, expires_at,
       case when lane is not null and run_at <= now then true end
from new
where not exists (select from new where is_refused)
order by place
returning id
