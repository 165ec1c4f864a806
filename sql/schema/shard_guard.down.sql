-- Makes a shard a queue of its own again. The ids of its jobs say its number: one with jobs could not become that shard again.

do $$
begin
    if to_regclass('pgqueue.shard') is not null then
        if exists (select from pgqueue.shard where number > 0)
           and (exists (select from pgqueue.jobs) or exists (select from pgqueue.dead_jobs)
                or exists (select from pgqueue.job_history) or exists (select from pgqueue.flows))
        then
            raise object_in_use using
                message = 'this database is a shard with jobs: their ids say which shard they are of',
                hint = 'drop the schema, or keep it at revision 0007 or later';
        end if;
    end if;
end $$;

drop trigger if exists jobs_guard_added on pgqueue.jobs;
drop trigger if exists jobs_guard_changed on pgqueue.jobs;
drop trigger if exists flows_guard_added on pgqueue.flows;
drop function if exists pgqueue.guard_job();
drop function if exists pgqueue.guard_flow();
drop function if exists pgqueue.guard_key(text);
drop function if exists pgqueue.enter_shard(text, boolean);
drop function if exists pgqueue.lives_here(text);
drop index if exists pgqueue.jobs_shard_key;
drop function if exists pgqueue.shard_key(text, text);
drop function if exists pgqueue.shard_of(text, integer[]);
drop table if exists pgqueue.shard;
