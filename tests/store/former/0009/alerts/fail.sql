-- alerts/fail: note why a look at an alert failed; no row: the same was noted before, or the alert is gone or locked.
-- index: alerts_pkey
-- locks: that row, if it is free
-- run by: worker upkeep, drain
with known as (
    select name, error from pgqueue.alerts where name = %(name)s::text for no key update skip locked
),
noted as (
    update pgqueue.alerts as alert
    set looked_at = coalesce(%(now)s::timestamptz, now()),
        next_at = coalesce(%(now)s::timestamptz, now()) + %(every)s::interval,
        error = %(error)s::text, failed_at = coalesce(alert.failed_at, %(now)s::timestamptz, now())
    from known where alert.name = known.name
    returning known.error
)
select 1 from noted where noted.error is distinct from %(error)s::text
