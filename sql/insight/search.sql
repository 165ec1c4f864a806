-- insight/search: of the jobs between two ids, live, dead or ended, those that match, newest first.
-- index: jobs_pkey, dead_jobs_pkey, job_history_id
-- locks: none
-- run by: Insight.search
-- rights: reader
-- why: arguments are read last, and only where their text has in it what is looked for
select {shown}
from (select {carried}, id, state, run_at, started_at, ended_at, attempts, unique_key, worker_id, reason, null::json as result,
             case when length(args::text) > 10000 then json_build_object('$not_kept', octet_length(args::text)) else args end as args,
             case when errors -> -1 is not null then jsonb_build_array(errors -> -1) end as errors
      from (select {carried: NAME::TYPE}, id, status::text as state, run_at, claimed_at as started_at,
                   null::timestamptz as ended_at, attempts, unique_key::text, worker_id, null::text as reason, args::json, errors::jsonb
            from pgqueue.jobs where %(live)s::boolean
            union all
            select {carried}, id, 'dead', run_at, started_at, died_at, attempts, unique_key, worker_id, reason, args::json, errors
            from pgqueue.dead_jobs where %(dead)s::boolean
            union all
            select {carried}, id, outcome, run_at, started_at, finished_at, attempts, unique_key, worker_id, null::text, args, errors
            from pgqueue.job_history where %(ended)s::boolean) as job
      where id < %(before)s::bigint and id >= %(down_to)s::bigint
        and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
        and (%(run)s::text is null or id <@ (select pgqueue.jobs_of_run(%(run)s::text)))
        and (%(states)s::text[] is null or state = any(%(states)s::text[]))
        and (%(queue)s::text is null or queue like %(queue)s::text)
        and (%(task)s::text is null or task like %(task)s::text)
        and (%(unique_key)s::text is null or unique_key = %(unique_key)s::text)
        and (%(enqueued_after)s::timestamptz is null or created_at >= %(enqueued_after)s::timestamptz)
        and (%(enqueued_before)s::timestamptz is null or created_at < %(enqueued_before)s::timestamptz)
        and (%(error)s::text is null or errors -> -1 ->> 'type' = %(error)s::text
             or right(errors -> -1 ->> 'type', length(%(error)s::text) + 1) = '.' || %(error)s::text)
        and (%(error_group)s::text is null or {error group} = %(error_group)s::text)
        and case when %(args)s::jsonb is null then true
                 when %(words)s::text is not null and strpos(args::text, %(words)s::text) = 0 then false
                 else pgqueue.as_jsonb(args) @> %(args)s::jsonb end
      order by id desc
      limit %(limit)s::integer) as found
order by id desc
