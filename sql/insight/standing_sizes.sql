-- insight/standing_sizes: how many pages the live jobs, the dead jobs and today's part of the history have, and the time.
-- index: none
-- locks: none
-- run by: Insight.queues
select pg_catalog.pg_relation_size('pgqueue.jobs') / pg_catalog.current_setting('block_size')::bigint,
       pg_catalog.pg_relation_size('pgqueue.dead_jobs') / pg_catalog.current_setting('block_size')::bigint,
       coalesce(pg_catalog.pg_relation_size(today.part) / pg_catalog.current_setting('block_size')::bigint, 0),
       today.now
from (select clock.now, coalesce(pg_catalog.to_regclass('pgqueue.job_history_' || pg_catalog.to_char(clock.now at time zone 'UTC', 'YYYYMMDD')),
                                 'pgqueue.job_history_default') as part
      from (select coalesce(%(now)s::timestamptz, now()) as now) as clock) as today
