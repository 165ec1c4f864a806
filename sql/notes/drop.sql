-- notes/drop: delete what ended jobs noted, on at most 500 pages chosen at random; how many rows were looked at, how many went.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: the deleted rows
-- run by: worker upkeep
-- why: most notes of a large table are of live and dead jobs; a sample bounds what one run reads, and finds the others in time.
--      Logs stay as long as the history has their job: a scalar subquery, since PostgreSQL may read the whole history for "exists"
with looked as materialized (
    select ctid as place, job_id, kind
    from pgqueue.notes tablesample system ((
        least(100, 500 * 100.0 / greatest(1, pg_catalog.pg_relation_size('pgqueue.notes')
                                             / pg_catalog.current_setting('block_size')::integer)))::real)
),
gone as (
    delete from pgqueue.notes
    where ctid = any(array(
        select place from looked
        where not exists (select from pgqueue.jobs where id = looked.job_id)
          and not exists (select from pgqueue.dead_jobs where id = looked.job_id)
          and (kind <> 'log' or (select true from pgqueue.job_history where id = looked.job_id limit 1) is null)))
    returning job_id
)
select (select count(*) from looked), (select count(*) from gone)
