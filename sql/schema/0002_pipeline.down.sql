-- Takes away what the data pipeline reads by, and puts the core's own functions back.

create or replace function pgqueue.drop_history_before(first_kept date) returns integer language plpgsql as $$
declare
    child_name text;
    dropped   integer := 0;
begin
    perform set_config('lock_timeout', '200ms', true);
    for child_name in
        select child.relname from pg_inherits join pg_class child on child.oid = inhrelid
        where inhparent = 'pgqueue.job_history'::regclass
          and child.relname ~ '^job_history_\d{8}$'
          and to_date(right(child.relname, 8), 'YYYYMMDD') < first_kept
        order by child.relname
    loop
        begin
            execute format('drop table pgqueue.%I', child_name);
            dropped := dropped + 1;
        exception when lock_not_available then
            exit;
        end;
    end loop;
    return dropped;
end $$;

create or replace function pgqueue.note_departure() returns trigger language plpgsql as $$
begin
    if tg_op = 'TRUNCATE' then
        insert into pgqueue.departed (worker_id) select id from pgqueue.workers on conflict do nothing;
    else
        insert into pgqueue.departed (worker_id) values (old.id) on conflict do nothing;
    end if;
    return null;
end $$;

drop function pgqueue.is_history_day_out(date), pgqueue.drop_history_day(date), pgqueue.hold_history_day(date),
              pgqueue.gather_history_day(date), pgqueue.history_partition(date);
drop table pgqueue.lake_days, pgqueue.deploys, pgqueue.former_workers;
drop index pgqueue.dead_jobs_ended_in;
drop index pgqueue.job_history_ended_in;
alter table pgqueue.dead_jobs drop column ended_in;
alter table pgqueue.job_history drop column ended_in;
