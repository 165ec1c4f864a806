-- pipeline/rollup_made: what each day's roll-ups were made from.
-- index: none
-- locks: none
-- run by: pgqueue pipeline rollup
select day, made_from from pgqueue.rollup_made
