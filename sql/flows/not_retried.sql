-- flows/not_retried: why jobs of a flow could not be added again: no record, arguments not kept, or a live job with the key.
-- index: job_history_id, dead_jobs_pkey, jobs_unique_key
-- locks: none
-- run by: PgQueue.retry_flow
-- rights: reader
select given.id, coalesce(dead.id, ended.id) is not null, coalesce(dead.unique_key, ended.unique_key),
       (select twin.id from pgqueue.jobs as twin where twin.unique_key = coalesce(dead.unique_key, ended.unique_key))
from unnest(%(ids)s::bigint[]) as given (id)
left join pgqueue.dead_jobs as dead on dead.id = given.id
left join lateral (
    select id, unique_key from pgqueue.job_history as one where one.id = given.id order by finished_at desc limit 1) as ended on true
