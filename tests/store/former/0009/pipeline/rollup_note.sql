-- pipeline/rollup_note: record what a day's roll-ups are made from.
-- index: rollup_made_pkey
-- locks: that day's row, until the commit: another writer of the same day waits here
-- run by: pgqueue pipeline rollup
insert into pgqueue.rollup_made as made (day, made_from) values (%(day)s::date, %(made_from)s::text)
on conflict (day) do update set made_from = excluded.made_from, made_at = now()
