-- Drops what has to be done when a job ends. A blocked job then waits without an end.

alter table pgqueue.waits drop column until;
alter table pgqueue.jobs drop column at_end;
alter table pgqueue.dead_jobs drop column at_end;

-- As in revision 0004.
create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors, meta)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time), meta
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor moved to the dead jobs (%): tried again in an hour',
        job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;
