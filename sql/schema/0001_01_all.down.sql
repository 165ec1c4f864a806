-- Takes the schema away, with every job in it; of a shard its guard, too.

drop view pgqueue.all_jobs, pgqueue.insight_minutes, pgqueue.insight_minutes_all, pgqueue.insight_hours, pgqueue.insight_hours_all,
          pgqueue.rollup_rates, pgqueue.rollup_fleet, pgqueue.rollup_budgets;
drop routine pgqueue.place_of(pgqueue.limited_tasks, jsonb), pgqueue.known_task(text, jsonb), pgqueue.note_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz);
drop table if exists pgqueue.shard;
drop table pgqueue.jobs, pgqueue.job_history, pgqueue.dead_jobs, pgqueue.retention, pgqueue.workers, pgqueue.unknown_tasks, pgqueue.lost_workers,
           pgqueue.former_workers, pgqueue.unique_holds, pgqueue.queues, pgqueue.limits, pgqueue.rates, pgqueue.limited_tasks, pgqueue.known_tasks, pgqueue.task_contracts,
           pgqueue.waits, pgqueue.deadlines, pgqueue.signals, pgqueue.callback_key, pgqueue.flows, pgqueue.nodes, pgqueue.edges,
           pgqueue.node_counts, pgqueue.flow_work, pgqueue.notes, pgqueue.stacks, pgqueue.schedules, pgqueue.schedule_ticks,
           pgqueue.alerts, pgqueue.series_written, pgqueue.series_minutes, pgqueue.series_hours, pgqueue.series_days, pgqueue.series_state, pgqueue.series_depths,
           pgqueue.series_depth_hours, pgqueue.deploys, pgqueue.lake_days, pgqueue.rollup_made, pgqueue.rollup_days,
           pgqueue.rollup_hours, pgqueue.rollup_failures, pgqueue.rollup_tenants, pgqueue.rollup_workers, pgqueue.sink_attempts,
           pgqueue.sink_rows, pgqueue.sink_writes, pgqueue.sink_rejected, pgqueue.sink_refused, pgqueue.audit, pgqueue.compatibility;
drop sequence pgqueue.idle_workers, pgqueue.limited_claims;
drop routine
    pgqueue.arguments_fit(json), pgqueue.as_jsonb(json), pgqueue.as_datetime(timestamptz), pgqueue.instant(text), pgqueue.check_name(text, text),
    pgqueue.with_error(jsonb, jsonb, timestamptz), pgqueue.promote_due(timestamptz, integer), pgqueue.set_aside(bigint, text, timestamptz),
    pgqueue.free_id(), pgqueue.keep_for(interval, interval, integer, text, text), pgqueue.history_args(), pgqueue.first_day_kept(timestamptz),
    pgqueue.history_partition(date), pgqueue.make_history_day(date), pgqueue.ensure_history_days(date, date), pgqueue.gather_history_day(date),
    pgqueue.erase_ended(date, bigint[], bigint[], text[]),
    pgqueue.hold_history_day(date), pgqueue.drop_history_day(date), pgqueue.is_history_day_out(date), pgqueue.drop_history_days(date),
    pgqueue.drop_old_history(timestamptz), pgqueue.drop_old_strays(timestamptz, integer), pgqueue.drop_old_dead(timestamptz, integer),
    pgqueue.worker_asked(), pgqueue.note_lost_worker(), pgqueue.wake_idle_workers(), pgqueue.tell_of_idle_workers(), pgqueue.worker_turned(),
    pgqueue.canonical_json(jsonb), pgqueue.unique_key(text, jsonb, text[]), pgqueue.queue_resumed(), pgqueue.queue_timeout_set(),
    pgqueue.serves(text[], text), pgqueue.pause_queue(text, text, text), pgqueue.resume_queue(text, text), pgqueue.unkept_queues(),
    pgqueue.is_full(text, bigint), pgqueue.count_collision(text, boolean, boolean), pgqueue.keep_in_lane(), pgqueue.lane_of(jsonb, jsonb, jsonb), pgqueue.put_in_lanes(bigint[]), pgqueue.backlog_seconds(text, timestamptz),
    pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text, jsonb), pgqueue.admit_free(bigint[], timestamptz),
    pgqueue.admit_lapsed(timestamptz, integer), pgqueue.check_signal(text, text, jsonb), pgqueue.send_signal(text, text, jsonb, timestamptz),
    pgqueue.signal(text, text, jsonb), pgqueue.settle_signals(timestamptz, integer), pgqueue.renew_callback_key(), pgqueue.callback_mac(text),
    pgqueue.callback_token(bigint, text, timestamptz), pgqueue.resolve_callback(text, jsonb, timestamptz), pgqueue.resolve(text, jsonb),
    pgqueue.schedule_changed(), pgqueue.find_live_jobs(), pgqueue.fire_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz),
    pgqueue.fire_due_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz),
    pgqueue.schedule(text, text, jsonb, text, interval, timestamptz, text, text, integer, integer, timestamptz, timestamptz, text, text),
    pgqueue.jobs_of_run(text), pgqueue.joined(anycompatiblearray), pgqueue.merged(smallint[], bigint[]), pgqueue.quantile(smallint[], bigint[], float8);
drop routine if exists
    pgqueue.shard_of(text, integer[]), pgqueue.shard_key(text, text), pgqueue.lives_here(text), pgqueue.enter_shard(text, boolean),
    pgqueue.guard_key(text), pgqueue.guard_job(), pgqueue.guard_flow();

-- What `pgqueue grants producer --queues` made: the triggers have gone with the table.
do $$
declare
    one record;
begin
    for one in
        select proname as name from pg_proc
        where pronamespace = (select typnamespace from pg_type where oid = 'pgqueue.priority'::regtype)
          and proname ~ '^producer_[0-9a-f]{16}$' and prorettype = 'trigger'::regtype
    loop
        execute format('drop function pgqueue.%I()', one.name);
    end loop;
end $$;
drop domain pgqueue.priority, pgqueue.allowance, pgqueue.live_status, pgqueue.arguments, pgqueue.short_text, pgqueue.short_json;
