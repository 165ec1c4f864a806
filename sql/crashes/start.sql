-- crashes/start: note that an attempt of a suspect starts; how many of its attempts ended with their worker, and that one's memory.
-- index: jobs_pkey, notes_pkey
-- locks: the job's row, shared: it is not taken over before this has committed
-- run by: worker, before it starts an attempt of a job that a lost worker had claimed
-- why: no row: the attempt no longer holds its job. Each attempt since the last revival left one error, so of the errors the
--      last ones count, one less than there were attempts
with held as (
    select id, worker_id, fence, attempts,
           case when pg_catalog.jsonb_typeof(errors) = 'array' then errors else '[]' end as errors
    from pgqueue.jobs
    where id = %(id)s::bigint and worker_id = %(worker)s::uuid and status = 'running' and fence = %(fence)s::integer
    for share
),
noted as (
    insert into pgqueue.notes (job_id, kind, name, value, at)
    select id, 'start', '', pg_catalog.json_build_object('worker', worker_id, 'fence', fence),
           coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())
    from held
    on conflict (job_id, kind, name) do update set value = excluded.value, at = excluded.at
)
select crashes.number, crashes.memory
from held cross join lateral (
    select count(*) as number,
           (pg_catalog.array_agg(substring(error->>'memory' from '^[0-9]{1,18}$')::bigint order by place desc))[1] as memory
    from pg_catalog.jsonb_array_elements(held.errors) with ordinality as one (error, place)
    where error->'crashed' = 'true' and place > pg_catalog.jsonb_array_length(held.errors) - (held.attempts - 1)
) as crashes
