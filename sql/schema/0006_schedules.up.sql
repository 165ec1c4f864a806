-- Firing schedules that are due: one that the database refuses, or that waits for another transaction, delays no other one.

-- As fire_ticks, which workers of the former release and manual runs call, with two differences. Any error that a trigger raises is
-- the error of its schedule, not only errors of four classes. And a tick whose job waits for another transaction, which holds
-- the unique key and has not ended, is not waited for: its state is 'busy', and nothing is noted of it. What ends the whole
-- statement is what is wrong with the server or the transaction: connections, resources, a deadlock, a cancellation.
create function pgqueue.fire_due_ticks(
    names text[], ats timestamptz[], run_ats timestamptz[], states text[], kinds text[], at_time timestamptz
) returns table (schedule text, at timestamptz, job_id bigint, state text, refused text)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '300ms' as $$
declare
    noted pgqueue.schedule_ticks[];
    one   record;
begin
    begin
        select array_agg(tick) into noted
        from pgqueue.note_ticks(names, ats, run_ats, states, kinds, at_time) as tick;
        return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        return;
    exception when others or assert_failure then
        null;  -- one of them: each by itself
    end;
    perform set_config('lock_timeout', '50ms', true);
    for one in
        select name, array_agg(new.at) as ats, array_agg(run_at) as run_ats, array_agg(new.state) as states, array_agg(kind) as kinds
        from unnest(names, ats, run_ats, states, kinds) as new (name, at, run_at, state, kind) group by name order by name
    loop
        begin
            select array_agg(tick) into noted
            from pgqueue.note_ticks(array_fill(one.name, array[cardinality(one.ats)]), one.ats, one.run_ats, one.states,
                                    one.kinds, at_time) as tick;
            return query select tick.schedule, tick.at, tick.job_id, tick.state, null::text from unnest(noted) as tick;
        exception
            when lock_not_available then
                return query select one.name, null::timestamptz, null::bigint, 'busy', null::text;
            when others or assert_failure then
                if left(sqlstate, 2) in ('08', '25', '40', '53', '57', '58') then
                    raise;
                end if;
                return query select one.name, null::timestamptz, null::bigint, null::text, sqlerrm;
        end;
    end loop;
end $$;
comment on function pgqueue.fire_due_ticks is
    'Notes ticks of schedules, each at most once, and adds their jobs; a schedule that the database refuses is returned with why.';

-- While overlap is allow, nothing asks which jobs of a schedule are live. When it is changed, those of its latest ticks are
-- found, so that the next tick does not overlap them.
create function pgqueue.find_live_jobs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.live_jobs := array(
        select job.id
        from (select job_id from pgqueue.schedule_ticks where schedule = new.name and job_id is not null
              order by at desc limit 1000) as tick
        join pgqueue.jobs as job on job.id = tick.job_id
        order by job.id);
    return new;
end $$;
create trigger schedules_overlap before update of overlap on pgqueue.schedules
    for each row when (old.overlap = 'allow' and new.overlap <> 'allow') execute function pgqueue.find_live_jobs();
create trigger schedules_added before insert on pgqueue.schedules  -- one of this name may have been removed
    for each row when (new.overlap <> 'allow') execute function pgqueue.find_live_jobs();
