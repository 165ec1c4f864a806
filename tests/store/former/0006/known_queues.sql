-- known_queues: the queues that were paused or given settings, and since when they are paused.
-- index: none: reads a row for each
-- locks: none
-- run by: PgQueue.standings
select name, paused_at from pgqueue.queues
