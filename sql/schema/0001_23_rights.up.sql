-- Rights: what a role may do before `pgqueue grants` gives it more.

-- PostgreSQL lets every role call a new function. The line "callers" in front of each function says who may call it: public, each role
-- that may use the schema, since the function reads no table; worker, operator, monitor, reader and producer, as in `pgqueue grants`; producer:signals, a
-- producer with --also signals; pipeline and sink, the roles of docs/pipeline/; trigger, nobody, since a trigger runs its function without
-- this right; owner, the owner alone, and functions with the owner's rights. This statement names all that are not for public.
revoke execute on function
    pgqueue.arguments_fit(json), pgqueue.instant(text), pgqueue.check_name(text, text), pgqueue.with_error(jsonb, jsonb, timestamptz),
    pgqueue.promote_due(timestamptz, integer), pgqueue.set_aside(bigint, text, timestamptz), pgqueue.free_id(),
    pgqueue.keep_for(interval, interval, integer, text, text), pgqueue.history_args(), pgqueue.first_day_kept(timestamptz), pgqueue.history_partition(date),
    pgqueue.make_history_day(date), pgqueue.ensure_history_days(date, date), pgqueue.gather_history_day(date), pgqueue.hold_history_day(date),
    pgqueue.drop_history_day(date), pgqueue.erase_ended(date, bigint[], bigint[], text[]), pgqueue.is_history_day_out(date), pgqueue.drop_history_days(date), pgqueue.drop_old_history(timestamptz),
    pgqueue.drop_old_strays(timestamptz, integer), pgqueue.drop_old_dead(timestamptz, integer), pgqueue.worker_asked(), pgqueue.note_lost_worker(),
    pgqueue.wake_idle_workers(), pgqueue.tell_of_idle_workers(), pgqueue.worker_turned(), pgqueue.queue_resumed(), pgqueue.queue_timeout_set(),
    pgqueue.pause_queue(text, text, text), pgqueue.resume_queue(text, text), pgqueue.unkept_queues(), pgqueue.is_full(text, bigint), pgqueue.keep_in_lane(),
    pgqueue.lane_of(jsonb, jsonb, jsonb), pgqueue.place_of(pgqueue.limited_tasks, jsonb), pgqueue.known_task(text, jsonb), pgqueue.put_in_lanes(bigint[]), pgqueue.count_collision(text, boolean, boolean),
    pgqueue.enqueue(text, jsonb, text, integer, timestamptz, integer, text, jsonb),
    pgqueue.admit_free(bigint[], timestamptz), pgqueue.admit_lapsed(timestamptz, integer), pgqueue.check_signal(text, text, jsonb),
    pgqueue.backlog_seconds(text, timestamptz), pgqueue.send_signal(text, text, jsonb, timestamptz), pgqueue.signal(text, text, jsonb), pgqueue.settle_signals(timestamptz, integer),
    pgqueue.renew_callback_key(), pgqueue.callback_mac(text), pgqueue.callback_token(bigint, text, timestamptz),
    pgqueue.resolve_callback(text, jsonb, timestamptz), pgqueue.resolve(text, jsonb), pgqueue.schedule_changed(), pgqueue.find_live_jobs(),
    pgqueue.note_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz),
    pgqueue.fire_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz),
    pgqueue.fire_due_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz),
    pgqueue.schedule(text, text, jsonb, text, interval, timestamptz, text, text, integer, integer, timestamptz, timestamptz, text, text),
    pgqueue.jobs_of_run(text)
from public;

-- Default privileges may have given roles the right to read every new table: not this secret.
do $$
declare
    one record;
begin
    for one in
        select distinct case when grantee = 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as role
        from pg_class, aclexplode(relacl) where pg_class.oid = 'pgqueue.callback_key'::regclass and grantee <> relowner
    loop
        execute format('revoke all on pgqueue.callback_key from %s', one.role);
    end loop;
end $$;
