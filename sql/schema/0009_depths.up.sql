-- How deep queues are, over time: what one worker finds in each minute.

-- New tables only: nothing waits for a lock. Of queues beyond a bound, those with the most jobs have rows.
create table pgqueue.series_depths (
    at           timestamptz not null,
    queue        text,
    blocked      bigint      not null,
    scheduled    bigint      not null,
    ready        bigint      not null,
    running      bigint      not null,
    dead         bigint      not null,
    oldest_ready float8,
    estimated    boolean     not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = 20000);
comment on table pgqueue.series_depths is
    'How many jobs each queue had in each minute, by state. A queue without a row in a minute had none, or was beyond the bound.';
comment on column pgqueue.series_depths.queue is 'Null: all queues together.';
comment on column pgqueue.series_depths.oldest_ready is 'For how many seconds the job that waited longest had been ready; null: none was.';
comment on column pgqueue.series_depths.estimated is 'Whether the numbers are scaled from a sample of the tables.';
-- Of all workers that come to a minute, the one that adds its row of all queues adds the others.
create unique index series_depths_at on pgqueue.series_depths (at, queue) nulls not distinct;
create index series_depths_queue on pgqueue.series_depths (queue, at);

create table pgqueue.series_depth_hours (like pgqueue.series_depths including defaults including comments including storage);
comment on table pgqueue.series_depth_hours is 'The highest numbers of each hour that is over, as in series_depths.';
create unique index series_depth_hours_at on pgqueue.series_depth_hours (at, queue) nulls not distinct;
create index series_depth_hours_queue on pgqueue.series_depth_hours (queue, at);

-- The roles that end jobs write them.
do $$
declare
    right_to record;
begin
    for right_to in
        select case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name, privilege_type
        from pg_class cross join lateral aclexplode(relacl)
        where pg_class.oid = 'pgqueue.job_history'::regclass and grantee <> relowner
          and privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    loop
        execute format('grant %s on pgqueue.series_depths, pgqueue.series_depth_hours to %s', right_to.privilege_type, right_to.name);
    end loop;
end $$;
