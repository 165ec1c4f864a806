-- shards/content: whether this database has jobs or flows, and whether a live one has a key.
-- index: none: the first row of each table, or of those with keys, is enough
-- locks: none
-- run by: pgqueue shards init, add
select exists (select from pgqueue.jobs) or exists (select from pgqueue.dead_jobs) or exists (select from pgqueue.job_history)
           or exists (select from pgqueue.flows),
       exists (select from pgqueue.jobs where unique_key is not null or lane is not null)
           or exists (select from pgqueue.flows where key is not null and ended_at is null)
           or exists (select from pgqueue.unique_holds where held_until > clock_timestamp())
