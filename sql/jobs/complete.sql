-- jobs/complete: end jobs as succeeded, where all of a batch have; what their ends concern; a missing id: no longer held.
-- index: jobs_pkey
-- locks: the ended rows
-- run by: worker completer, Context.transaction, take
-- why: it does what end does and no more than most batches need, which takes a fifth less of the server. Long arguments are
--      not copied to the history: to write them a third time costs more than all else; those of a flow's job (flags & 2)
--      are, and so is its row, so that the flow can be retried
with done as (
    delete from pgqueue.jobs
    where id = any(%(ids)s::bigint[]) and worker_id = %(worker)s::uuid and status = 'running'
      and fence = coalesce(%(fence)s::integer, (%(fences)s::integer[])[pg_catalog.width_bucket(id, %(ids)s::bigint[])])
    returning *, pg_catalog.width_bucket(id, %(ids)s::bigint[]) as place
),
kept as (
    insert into pgqueue.job_history ({carried}, id, run_at, started_at, finished_at,
                                     worker_id, attempts, outcome, unique_key, args, errors, result)
    select {carried}, id, run_at, clock.now - pg_catalog.make_interval(secs => (%(seconds)s::float8[])[place]), clock.now,
           worker_id, attempts, 'succeeded', unique_key,
           case when pg_catalog.pg_column_size(args) <= (select pgqueue.history_args()) or flags & 2 = 2 then args
                else pg_catalog.json_build_object('$not_kept', pg_catalog.pg_column_size(args)) end,
           case when (%(errors)s::text[])[place] is null then errors  -- else why the result is not kept
                else pgqueue.with_error(errors, (%(errors)s::text[])[place]::jsonb, clock.now) end,
           (%(results)s::text[])[place]::json
    from done, (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
    where (%(keep)s::boolean and queue <> all((select pgqueue.unkept_queues())::text[])) or flags & 2 = 2
)
select id, flags from done
