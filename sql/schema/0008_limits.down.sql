-- Takes the places of retries away, and the defaults of arguments: as in revision 0007.

create or replace function pgqueue.keep_in_lane() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.status = 'ready' then
        new.status := 'blocked';
        new.in_lane := true;
    elsif new.status <> 'blocked' then
        new.in_lane := null;
    end if;
    return new;
end $$;
create or replace trigger jobs_keep_in_lane before update of status, lane on pgqueue.jobs
    for each row when (new.lane is not null) execute function pgqueue.keep_in_lane();

create or replace function pgqueue.put_in_lanes(ids bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from pgqueue.limited_tasks) then
        return;
    end if;
    update pgqueue.jobs as job
    set lane = pgqueue.lane_of(limited.keys, pgqueue.as_jsonb(job.args)),
        cost = case jsonb_typeof(limited.cost)
                   when 'number' then limited.cost::text::integer
                   when 'string' then substring(job.args ->> (limited.cost #>> '{}') from '^[1-9][0-9]{0,6}$')::integer end
    from pgqueue.limited_tasks as limited
    where job.id = any(ids) and limited.task = job.task and job.lane is null and job.status <> 'running';
end $$;

drop index pgqueue.jobs_kept_places;
alter table pgqueue.jobs drop column place_at;
alter table pgqueue.limited_tasks drop column ordered, drop column defaults;
