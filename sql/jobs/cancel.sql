-- jobs/cancel: lock a live job, and ask its worker to stop it if it runs; its status; no row: there is no live job of this id.
-- index: jobs_pkey
-- locks: that job's row; where the job runs, the database-wide NOTIFY lock, at commit
-- run by: JobHandle.cancel, PgQueue.cancel
-- why: a job that waits is ended by end, in the same transaction
with target as (
    select id, status from pgqueue.jobs where id = %(id)s::bigint for update
),
asked as (
    update pgqueue.jobs as job set cancel_requested = true
    from target where job.id = target.id and target.status = 'running'
    returning job.id
),
told as (
    select pg_catalog.pg_notify('pgqueue.wake', 'cancel') from asked
)
select status from target left join told on true
