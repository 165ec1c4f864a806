-- Takes away lanes and limits. Jobs that waited in a lane are ready, and run without limits.

-- As in revision 0006.
create or replace function pgqueue.set_aside(job_id bigint, why text, at_time timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from pgqueue.jobs where id = job_id returning *
    )
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority,
                                   attempts, max_attempts, reason, queue, task, unique_key, args, errors, meta, at_end)
    select id, run_at, created_at, null, at_time, null, collisions, priority, attempts, max_attempts, 'undecodable', queue, task,
           unique_key, pgqueue.as_jsonb(args), pgqueue.with_error(errors, jsonb_build_object(
               'attempt', attempts, 'type', 'SetAside', 'traceback', null,
               'message', 'the database refused to put the job in line: ' || why), at_time), meta, at_end
    from gone;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception then
    raise warning 'pgqueue: job % can neither be put in line (%) nor moved to the dead jobs (%): tried again in an hour',
        job_id, why, sqlerrm;
    update pgqueue.jobs set run_at = at_time + interval '1 hour' where id = job_id;
end $$;

drop trigger jobs_keep_in_lane on pgqueue.jobs;
set local enable_seqscan = off;  -- by the index of lanes: without figures of the column, all jobs would be read
update pgqueue.jobs set status = 'ready' where in_lane;
set local enable_seqscan to default;
drop function pgqueue.keep_in_lane();
drop function pgqueue.put_in_lanes(bigint[]), pgqueue.lane_of(jsonb, jsonb);
drop table pgqueue.limits, pgqueue.rates, pgqueue.limited_tasks;
drop index pgqueue.jobs_lanes, pgqueue.jobs_running_in_lanes;
alter table pgqueue.jobs drop column lane, drop column in_lane, drop column cost;
alter table pgqueue.dead_jobs drop column lane, drop column cost;
