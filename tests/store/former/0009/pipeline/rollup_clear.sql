-- pipeline/rollup_clear: delete a day from the roll-ups, before it is written again.
-- index: rollup_hours_pkey, rollup_days_pkey, rollup_failures_pkey, rollup_tenants_day_hour_queue_tenant_key, rollup_workers_pkey
-- locks: that day's rows
-- run by: pgqueue pipeline rollup
with hours as (delete from pgqueue.rollup_hours where day = %(day)s::date),
     days as (delete from pgqueue.rollup_days where day = %(day)s::date),
     failures as (delete from pgqueue.rollup_failures where day = %(day)s::date),
     tenants as (delete from pgqueue.rollup_tenants where day = %(day)s::date)
delete from pgqueue.rollup_workers where day = %(day)s::date
