-- shards/number_ids: let the ids of this database's jobs and flows say its number, in their high bits.
-- index: none
-- locks: none
-- run by: pgqueue shards init, add
select setval('pgqueue.jobs_id_seq', greatest(%(first)s::bigint, (select last_value from pgqueue.jobs_id_seq)), true),
       setval('pgqueue.flows_id_seq', greatest(%(first)s::bigint, (select last_value from pgqueue.flows_id_seq)), true)
