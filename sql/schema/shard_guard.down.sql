-- Makes a shard a queue of its own again.

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
