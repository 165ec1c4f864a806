-- insight/search_floor: the id down to which a search goes that looks at a number of jobs of each table at most; null: at all jobs.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: Insight.search
-- rights: reader
-- why: ids have gaps, so the jobs are counted. Each table is for itself: over their union PostgreSQL 18 sorts all ids
select greatest(
    (select id from pgqueue.jobs where %(live)s::boolean and %(ids)s::bigint[] is null and id < %(before)s::bigint
     order by id desc offset %(looked)s::integer - 1 limit 1),
    (select id from pgqueue.dead_jobs where %(dead)s::boolean and id < %(before)s::bigint
     order by id desc offset %(looked)s::integer - 1 limit 1),
    (select id from pgqueue.job_history where %(ended)s::boolean and id < %(before)s::bigint
     order by id desc offset %(looked)s::integer - 1 limit 1)
)
