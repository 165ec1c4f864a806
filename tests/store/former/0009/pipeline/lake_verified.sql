-- pipeline/lake_verified: record that a day is verified in a lake.
-- index: lake_days_pkey
-- locks: the day's row
-- run by: pipeline verify
insert into pgqueue.lake_days as known (day, history_rows, dead_rows, checksum, below, lake)
values (%(day)s::date, %(history_rows)s::bigint, %(dead_rows)s::bigint, %(checksum)s::text::numeric, %(below)s::bigint,
        %(lake)s::text)
on conflict (day) do update
set history_rows = excluded.history_rows, dead_rows = excluded.dead_rows, checksum = excluded.checksum,
    below = excluded.below, lake = excluded.lake, verified_at = now()
