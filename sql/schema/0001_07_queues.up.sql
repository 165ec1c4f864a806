-- Queues: their settings, who paused or closed them and why.

create table pgqueue.queues (
    name         text              primary key,
    paused_at    timestamptz,
    paused_by    text,
    paused_why   text,
    closed_at   timestamptz,
    closed_by   text,
    closed_why  text,
    priority     pgqueue.priority,
    max_attempts pgqueue.allowance,
    timeout      interval          check (timeout > '0'),
    keep_history interval          check (keep_history = '0' or keep_history >= '1 day'),
    history_cut  date,
    keep_dead    interval          check (keep_dead >= '0'),
    backlog      integer           check (backlog between 1 and 1000000),
    when_full    text              check (when_full in ('warn', 'refuse')),
    ageing       interval          check (ageing between '1 second' and '366 days'),
    ageing_to    smallint          check (ageing_to between 1 and 100),
    created_at   timestamptz       not null default now(),
    set_at       timestamptz,
    set_by       text
);
comment on table pgqueue.queues is 'What is known of a queue beside its jobs. A queue needs no row to be used.';
comment on column pgqueue.queues.name is 'A queue that was paused, closed or given settings. Other queues need no row.';
comment on column pgqueue.queues.paused_at is 'Since when no worker claims its jobs; null: workers do.';
comment on column pgqueue.queues.created_at is 'When the row was made.';
comment on column pgqueue.queues.paused_by is 'Who paused it, for people to read.';
comment on column pgqueue.queues.paused_why is 'Why, for people to read.';
comment on column pgqueue.queues.closed_at is 'Since when enqueues to it are refused; null: they are not. Its jobs run.';
comment on column pgqueue.queues.closed_by is 'Who closed it, for people to read.';
comment on column pgqueue.queues.closed_why is 'Why, for people to read.';
comment on column pgqueue.queues.priority is 'Of jobs whose enqueue and task name none; null: 0.';
comment on column pgqueue.queues.max_attempts is 'Of jobs whose enqueue and task name none; null: 25.';
comment on column pgqueue.queues.timeout is 'How long an attempt may take whose task names no timeout; null: as long as it likes.';
comment on column pgqueue.queues.keep_history is 'For how long its ended jobs are kept; 0: jobs that succeed are not kept, others as pgqueue.retention says; null: as pgqueue.retention says.';
comment on column pgqueue.queues.history_cut is 'Days before this one have been cleared of its jobs; null: no day has.';
comment on column pgqueue.queues.keep_dead is 'For how long its dead jobs are kept; null: as pgqueue.retention says.';
comment on column pgqueue.queues.backlog is 'From how many ready jobs on it is full; null: never.';
comment on column pgqueue.queues.when_full is 'What an enqueue to a full queue does: refuse, it fails; warn or null, it logs a warning.';
comment on column pgqueue.queues.ageing is 'A job that has waited this long once, twice, … has at least priority 1, 2, …; null: priorities stay.';
comment on column pgqueue.queues.ageing_to is 'The highest priority that ageing gives; null: 100.';
comment on column pgqueue.queues.set_at is 'When these settings were stored last.';
comment on column pgqueue.queues.set_by is 'Who stored them, for people to read.';

-- A queue is resumed, by pgqueue or by an update of this table: idle workers are notified, and the name and the reason of the
-- pause are removed.
-- callers: trigger
create function pgqueue.queue_resumed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.paused_at is null then
        new.paused_by := null;
        new.paused_why := null;
        perform pg_notify(tg_table_schema || '.wake', '') where exists (select from pgqueue.workers where idle);
    end if;
    if new.closed_at is null then
        new.closed_by := null;
        new.closed_why := null;
    end if;
    return new;
end $$;
create trigger queues_resumed before update of paused_at, closed_at on pgqueue.queues
    for each row when (old.paused_at is not null or old.closed_at is not null) execute function pgqueue.queue_resumed();

-- Workers read timeouts with each poll; an idle one polls every few seconds, so it is told to.
-- callers: trigger
create function pgqueue.queue_timeout_set() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('pgqueue.wake', 'flow');
    return null;
end $$;
create trigger queues_timeout after update of timeout on pgqueue.queues
    for each row when (old.timeout is distinct from new.timeout) execute function pgqueue.queue_timeout_set();

-- Whether a worker with these --queues serves a queue: names, patterns in which * stands for any characters, and with a ! before
-- them those that it does not serve. Null: it serves all. The same rule as in pgqueue/values/queues/served_queues.py.
-- callers: public
create function pgqueue.serves(queues text[], queue text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select queues is null or (
        coalesce(bool_or(stands) filter (where not excludes), bool_and(excludes)) and not coalesce(bool_or(stands) filter (where excludes), false))
    from (select excludes, queue like replace(replace(replace(replace(name, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') as stands
          from (select left(entry, 1) = '!' as excludes, ltrim(entry, '!') as name from unnest(queues) as entry) as said) as matched
$$;

-- From other languages: pause and resume one queue; to pause several, select it from those that you mean.
-- callers: worker, operator
create function pgqueue.pause_queue(queue text, why text default null, said_by text default session_user) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    changed boolean;
begin
    perform pgqueue.check_name('queue', pause_queue.queue);
    insert into pgqueue.queues as known (name, paused_at, paused_by, paused_why)
    values (pause_queue.queue, now(), pause_queue.said_by, pause_queue.why)
    on conflict (name) do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why
    where known.paused_at is null;
    changed := found;
    if changed then
        insert into pgqueue.audit (said_by, action, target, details)
        values (pause_queue.said_by, 'pause', pause_queue.queue, jsonb_build_object('why', pause_queue.why));
    end if;
    return changed;
end $$;
comment on function pgqueue.pause_queue is 'Workers claim no more of its jobs; false: it was paused.';
-- callers: worker, operator
create function pgqueue.resume_queue(queue text, said_by text default session_user) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    changed boolean;
begin
    update pgqueue.queues set paused_at = null, closed_at = null
    where name = resume_queue.queue and (paused_at is not null or closed_at is not null);
    changed := found;
    if changed then
        insert into pgqueue.audit (said_by, action, target) values (resume_queue.said_by, 'resume', resume_queue.queue);
    end if;
    return changed;
end $$;
comment on function pgqueue.resume_queue is 'Workers claim its jobs again, and it takes new ones; false: it was neither paused nor closed.';

-- Whether a queue would have more ready jobs than its bound with this many more; null: it has no bound. It reads as many entries of
-- ready jobs as the bound says, at most: 10,000 in 1 ms. With the owner's rights, so that an enqueuer need not read jobs.
-- callers: producer, worker, operator
create function pgqueue.is_full(queue text, more bigint) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    bound integer := (select backlog from pgqueue.queues where name = is_full.queue);
begin
    return case when bound is not null then
        more > bound or exists (
            select from (select from pgqueue.jobs as job where job.queue = is_full.queue and job.status = 'ready'
                         union all
                         select from pgqueue.jobs as job where job.queue = is_full.queue and job.in_lane) as ready
            offset least(greatest(bound - more, 0), bound) limit 1)
    end;
end $$;

-- The queues of which the history keeps no job that succeeded. With the owner's rights, as history_args. Each batch of ends
-- asks: plpgsql keeps the plan for the session, and the index has no entries where every queue keeps its history.
create index queues_not_kept on pgqueue.queues (name) where keep_history = '0';
-- callers: worker, operator
create function pgqueue.unkept_queues() returns text[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return array(select name from pgqueue.queues where keep_history = '0');
end $$;
