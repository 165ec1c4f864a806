-- Drops signals. Jobs that wait for one, or for a time, are ready, or scheduled: their next attempt asks again, and fails.

with gone as (
    delete from pgqueue.waits where waits_for like 'signal:%' or waits_for like 'timer:%' or waits_for = 'refused' returning job_id
)
update pgqueue.jobs set status = case when run_at > now() then 'scheduled' else 'ready' end
where id = any(array(select job_id from gone)) and status = 'blocked'
  and not exists (select from pgqueue.waits where waits.job_id = jobs.id
                  and waits_for not like 'signal:%' and waits_for not like 'timer:%' and waits_for <> 'refused');

drop function pgqueue.resolve(text, jsonb), pgqueue.resolve_callback(text, jsonb, timestamptz),
    pgqueue.callback_token(bigint, text, timestamptz), pgqueue.callback_mac(text), pgqueue.signal(text, text, jsonb),
    pgqueue.check_signal(text, text, jsonb), pgqueue.admit_lapsed(timestamptz, integer),
    pgqueue.settle_signals(timestamptz, integer), pgqueue.send_signal(text, text, jsonb, timestamptz),
    pgqueue.admit_free(bigint[], timestamptz), pgqueue.renew_callback_key();
drop table pgqueue.callback_key;
drop table pgqueue.deadlines;
drop table pgqueue.signals;
