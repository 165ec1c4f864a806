-- Takes the bounds away, and brings the old function and view back.

-- For triggers and other languages. Returns the job's id; on a taken unique key the holder's id.
create or replace function pgqueue.enqueue(
    task         text,
    args         jsonb       default '{}',
    queue        text        default 'default',
    priority     integer     default 0,
    run_at       timestamptz default null,
    max_attempts integer     default 25,
    unique_key   text        default null
) returns bigint language plpgsql as $$
declare
    job_id bigint;
begin
    loop
        insert into pgqueue.jobs as job (queue, task, args, priority, status, run_at, max_attempts, unique_key)
        values (enqueue.queue, enqueue.task, enqueue.args, enqueue.priority,
                case when enqueue.run_at > now() then 'scheduled' else 'ready' end,
                coalesce(enqueue.run_at, now()), enqueue.max_attempts, enqueue.unique_key)
        on conflict do nothing
        returning job.id into job_id;
        exit when job_id is not null;
        update pgqueue.jobs as job set collisions = job.collisions + 1
        where job.unique_key = enqueue.unique_key
        returning job.id into job_id;
        exit when job_id is not null;  -- else the holder ended between the two statements: once more
    end loop;
    return job_id;
end $$;

-- Every column has one type in all three parts, domains cast away: else none of their indices would be used.
create or replace view pgqueue.all_jobs as
    select id, status::text as state, queue, task, args::jsonb, priority::smallint, run_at, created_at,
           claimed_at as started_at, null::timestamptz as ended_at, attempts, max_attempts::smallint,
           unique_key, collisions, worker_id, errors,
           null::text as reason, null::jsonb as result
    from pgqueue.jobs
    union all
    select id, 'dead', queue, task, args, priority, run_at, created_at, started_at,
           died_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, reason, null
    from pgqueue.dead_jobs
    union all
    select id, outcome, queue, task, args::jsonb, priority, run_at, created_at, started_at,
           finished_at, attempts, max_attempts, unique_key, collisions, worker_id, errors, null, result
    from pgqueue.job_history;

drop function pgqueue.check_name(text, text), pgqueue.as_datetime(timestamptz), pgqueue.as_jsonb(json),
              pgqueue.arguments_fit(json);

drop function pgqueue.unique_key(text, jsonb, text[]);
drop function pgqueue.canonical_json(jsonb);
