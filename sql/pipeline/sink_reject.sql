-- pipeline/sink_reject: remove the staged rows whose unique key a live job holds, count them on that job, and record them.
-- index: jobs_unique_key, sink_rows_pkey
-- locks: those jobs' rows, in the order of their ids
-- run by: the sink, on the driver
-- rights: producer --also spark,unique
with colliding as materialized (
    select staged.attempt_id, staged.place, staged.unique_key, staged.meta -> 'key' as key, job.id as job_id
    from pgqueue.sink_rows as staged
    join pgqueue.jobs as job on job.unique_key = staged.unique_key
    where staged.attempt_id = any(%(attempts)s::uuid[]) and staged.refusal is null
),
locked as (
    select job.id from pgqueue.jobs as job
    where job.id in (select job_id from colliding)
    order by job.id for update
),
counted as (
    update pgqueue.jobs as job set collisions = job.collisions + holder.times
    from (select job_id, count(*) as times from colliding group by job_id) as holder
    join locked on locked.id = holder.job_id
    where job.id = holder.job_id
    returning job.id
),
kept as (
    insert into pgqueue.sink_rejected (write_id, partition, place, unique_key, job_id, key)
    select %(write)s::uuid, attempt.partition, colliding.place, colliding.unique_key, colliding.job_id, colliding.key::json
    from colliding
    join counted on counted.id = colliding.job_id
    join pgqueue.sink_attempts as attempt on attempt.id = colliding.attempt_id
),
gone as (
    delete from pgqueue.sink_rows as staged
    using colliding join counted on counted.id = colliding.job_id
    where staged.attempt_id = colliding.attempt_id and staged.place = colliding.place
    returning staged.place
)
select count(*) from gone
