-- pipeline/lake_versions: count a day's rows of the history, with a sum of their versions.
-- index: none
-- locks: none
-- run by: pipeline prune
-- why: an update gives a row another transaction and another place, so rows with the same sum are as they were when
--      lake_checksum.sql read them; no value is read. A rewrite of the table changes the sum, too: prune then compares values
select count(*), coalesce(sum(hash_record_extended(row(xmin, ctid), 0)), 0)::text
from pgqueue.job_history
where finished_at >= %(day)s::date::timestamp at time zone 'UTC'
  and finished_at < (%(day)s::date + 1)::timestamp at time zone 'UTC'
  and ended_in >= %(since)s::bigint
