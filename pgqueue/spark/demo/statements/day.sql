-- day: make the rows of a past day, as ended jobs, from cells that describe the jobs of one task and hour, and from their runs.
-- index: none
-- locks: none beyond the new rows
-- run by: pgqueue pipeline generate
-- why: values that differ between rows come from hashes of the job's id, so they are the same in every run; each OFFSET 0
--      keeps the planner from copying an expression of one step to every place where a later step uses it
with cell as (
    select * from jsonb_to_recordset(%(cells)s::jsonb) as cell (
        first bigint, rows integer, queue text, task text, fails float8, refused float8, cancelled float8, max_attempts integer,
        priority smallint, later float8, number text, key text, result boolean, crowd integer, failures text)
),
drawn as (  -- three hashes of 64 bits
    select cell.*, nth, %(first_id)s::bigint + first + nth as id,
           (%(ended)s::bigint[])[first + nth] as ended_us, (%(ran)s::bigint[])[first + nth] as ran_us,
           (%(waited)s::bigint[])[first + nth] as waited_us, (%(worker)s::integer[])[first + nth] as worker,
           hashint8extended(%(first_id)s::bigint + first + nth, %(seed)s::bigint * 8 + 1) as b,
           hashint8extended(%(first_id)s::bigint + first + nth, %(seed)s::bigint * 8 + 2) as c,
           hashint8extended(%(first_id)s::bigint + first + nth, %(seed)s::bigint * 8 + 3) as d
    from cell cross join lateral generate_series(1, cell.rows) as nth
    offset 0
),
uniform as (  -- as numbers between 0 and 1
    select drawn.*,
           ((b >> 32 & 4294967295) + 0.5) / 4294967296.0::float8 as failing,
           (c >> 32 & 4294967295) / 4294967296.0::float8 as luck,
           (c & 65535) / 65536.0::float8 as tenant,
           (d >> 40 & 16777215) as serial,
           (d >> 20 & 1048575) / 1048576.0::float8 as ahead,
           d & 1 as coin
    from drawn
    offset 0
),
failed as (  -- each attempt fails with the same probability, so the number of failures is geometric
    select uniform.*,
           case when failing < fails then least(floor(ln(failing) / ln(fails))::integer, max_attempts) else 0 end as failures_,
           %(day)s::date::timestamp at time zone 'UTC' + ended_us * interval '1 microsecond' as ended_at
    from uniform
    offset 0
),
ended as (
    select failed.*,
           case when failures_ >= max_attempts then 'exhausted'
                when luck < refused * 0.6 then 'refused'
                when luck < refused * 0.9 then 'asked'
                when luck < refused then 'undecodable'
                when luck < refused + cancelled and coin = 0 then 'withdrawn'  -- while it waited
                when luck < refused + cancelled then 'cancelled'
                else 'succeeded' end as ending,
           least(failures_, max_attempts - 1) as before,
           ended_at - ran_us * interval '1 microsecond' as started_at,
           ended_at - (ran_us + waited_us) * interval '1 microsecond' as run_at
    from failed
    offset 0
),
made as (
    select id, run_at,
           run_at - (case when before > 0 then 15 * (2 ^ before - 1) + (ran_us + waited_us) / 1000000.0::float8 else 0 end
                     + case when ahead < later then 3600 * ahead / later else 0 end) * interval '1 second' as created_at,
           case when ending <> 'withdrawn' then started_at end as started_at, ended_at,
           case when ending <> 'withdrawn' then (%(workers)s::uuid[])[1 + worker] end as worker_id,
           case when key is not null and mod(serial, 97) = 0 then 1 + mod(serial, 3) else 0 end as collisions, priority,
           before + case when ending <> 'withdrawn' then 1 else 0 end as attempts, max_attempts, ending, queue, task,
           key || ':' || id as unique_key,
           jsonb_build_object(
               'tenant', 'tenant-' || case when nth <= crowd then %(crowd)s::integer
                                           else floor(exp(tenant * ln(%(tenants)s::integer + 1)))::integer end,
               number, serial) as args,
           case when before > 0 or ending in ('exhausted', 'refused', 'asked', 'undecodable') then (
               select jsonb_agg(jsonb_build_object(
                          'attempt', attempt,
                          'at', case when attempt > before then ended_at
                                     else run_at - 15 * (2 ^ before - 2 ^ (attempt - 1)) * interval '1 second' end,
                          'type', failure ->> 'type',
                          'message', format(failure ->> 'message', 1 + mod(chosen & 1073741823, 998), lpad(to_hex(chosen), 8, '0'), serial),
                          'traceback', E'Traceback (most recent call last):\n  File "/srv/shop/' || queue || '.py", line '
                                       || 20 + length(failure ->> 'message') || ', in ' || task || E'\n    '
                                       || (failure ->> 'raised_in')) order by attempt)
               from generate_series(1, before + case when ending in ('exhausted', 'refused', 'asked', 'undecodable')
                                                     then 1 else 0 end) as attempt,
                    lateral (select hashint8(id * 32 + attempt) as chosen,
                                    case when attempt > before and ending in ('refused', 'asked', 'undecodable')
                                         then ending else failures end as kind) as draw,
                    lateral (select %(failures)s::jsonb -> kind as kinds) as named,
                    lateral (select kinds -> mod(chosen >> 9 & 1048575, jsonb_array_length(kinds)) as failure) as one
           ) end as errors,
           case when result and ending = 'succeeded' then jsonb_build_object('rows', mod(serial, 1000)) end as result
    from ended
),
dead as (
    insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, worker_id, collisions, priority, attempts,
                                   max_attempts, reason, queue, task, unique_key, args, errors)
    select id, run_at, created_at, started_at, ended_at, worker_id, collisions, priority, attempts, max_attempts, ending,
           queue, task, unique_key, args, errors
    from made where ending in ('exhausted', 'refused', 'asked', 'undecodable')
)
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, worker_id, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, unique_key, args, errors, result)
select id, run_at, created_at, started_at, ended_at, worker_id, collisions, priority, attempts, max_attempts,
       case when ending = 'succeeded' then 'succeeded' else 'cancelled' end, queue, task, unique_key, args, errors, result
from made where ending in ('succeeded', 'withdrawn', 'cancelled')
