-- jobs/end: end jobs as succeeded, dead or cancelled; a missing id: that attempt no longer held its job, or the job does not wait.
-- index: jobs_pkey, dead_jobs_pkey
-- locks: the ended rows
-- run by: worker completer, worker upkeep, take, PgQueue.cancel
-- why: here alone it is decided that a job which was asked to cancel ends as cancelled, unless it succeeded. No join: with
--      one, the planner may start from the jobs, when its statistics say that there are none, and then every entry of a job
--      that is gone is read, a second and more while a snapshot is held open elsewhere; ids are given in order, so
--      width_bucket finds what belongs to each by halving. Without a worker, only waiting jobs are ended. Where a dead job
--      has the id already, this one is kept under a new id, and its last error names its old id. Of a flow's job (flags & 2)
--      the row and all arguments are kept, so that the flow can be retried. The attempt of a claim that expired was not started
with done as (
    delete from pgqueue.jobs
    where id = any(%(ids)s::bigint[])
      and case when %(worker)s::uuid is null then status <> 'running'
               else worker_id = %(worker)s::uuid and status = 'running' and fence = coalesce(
                   %(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])]) end
      and (cancel_requested or (%(outcomes)s::text[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])] <> 'requeued')
    returning *, pg_catalog.width_bucket(id, %(ids)s::bigint[]) as place
),
judged as (
    select done.*, clock.now, (%(errors)s::text[])[place]::jsonb as error,
           clock.now - pg_catalog.make_interval(secs => (%(seconds)s::float8[])[place]) as started_at,
           case when cancel_requested and (%(outcomes)s::text[])[place] <> 'succeeded' then 'cancelled'
                else (%(outcomes)s::text[])[place] end as outcome
    from done cross join (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
),
kept as (
    insert into pgqueue.job_history ({carried}, id, run_at, started_at, finished_at, worker_id,
                                     attempts, outcome, unique_key, args, errors, result)
    select {carried}, id, run_at, coalesce(started_at, claimed_at), now, %(worker)s::uuid,
           attempts, outcome, unique_key,
           case when outcome = 'cancelled' or flags & 2 = 2
                     or pg_catalog.pg_column_size(args) <= (select pgqueue.history_args()) then args
                else pg_catalog.json_build_object('$not_kept', pg_catalog.pg_column_size(args)) end,
           case when error is null then errors else pgqueue.with_error(errors, error, now) end,
           (%(results)s::text[])[place]::json
    from judged
    where outcome = 'cancelled' or (outcome = 'succeeded'
              and ((%(keep)s::boolean and queue <> all((select pgqueue.unkept_queues())::text[])) or flags & 2 = 2))
),
dead as (
    insert into pgqueue.dead_jobs ({carried}, {kept}, id, run_at, started_at, died_at, worker_id,
                                   attempts, reason, unique_key, args, errors)
    select {carried}, {kept}, case when taken then pgqueue.free_id() else id end, run_at, started_at, now, %(worker)s::uuid,
           attempts - case when (%(reasons)s::text[])[place] = 'expired' and %(worker)s::uuid is not null then 1 else 0 end,
           (%(reasons)s::text[])[place], unique_key,
           args, pgqueue.with_error(errors, error || case when taken then pg_catalog.jsonb_build_object('former_id', id)
                                                    else '{}' end, now)
    from judged
    cross join lateral (select exists (select from pgqueue.dead_jobs as other where other.id = judged.id) as taken) as found
    where outcome = 'dead'
)
select id, outcome, flags from judged
