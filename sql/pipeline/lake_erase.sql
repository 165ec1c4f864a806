-- pipeline/lake_erase: delete jobs that ended on a day, by their ids and transactions, and all that pgqueue keeps of them elsewhere.
-- index: none
-- locks: those rows
-- run by: pipeline erase
-- why: the lake has these rows, too, so the same ones are deleted; a role erases without rights to the tables
select pgqueue.erase_ended(%(day)s::date, %(ids)s::bigint[], %(ended_in)s::bigint[], %(texts)s::text[])
