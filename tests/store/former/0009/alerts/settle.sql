-- alerts/settle: note what a look at an alert has found, and how the alert stands now.
-- index: alerts_pkey
-- locks: that row; the transaction has locked it before
-- run by: worker upkeep, drain
update pgqueue.alerts
set looked_at = coalesce(%(now)s::timestamptz, now()), next_at = coalesce(%(now)s::timestamptz, now()) + %(every)s::interval,
    value = %(value)s::float8, threshold = %(threshold)s::float8, summary = %(summary)s::text,
    held_at = %(held_at)s::timestamptz, firing_at = %(firing_at)s::timestamptz, clear_at = %(clear_at)s::timestamptz,
    told_at = %(told_at)s::timestamptz, told = %(told)s::integer, job_id = coalesce(%(job_id)s::bigint, job_id),
    error = %(error)s::text,
    failed_at = case when %(error)s::text is not null then coalesce(failed_at, %(now)s::timestamptz, now()) end
where name = %(name)s::text
