-- shards/put_settings: store what operators have said of queues and limits on the other shards.
-- index: queues_pkey, limits_pkey
-- locks: the rows of both tables that are added or changed
-- run by: pgqueue shards init, add
-- why: programs with the longer list have stored there already what their code declares, and the operators' word counts
with queues as (
    insert into pgqueue.queues select * from jsonb_populate_recordset(null::pgqueue.queues, %(queues)s::jsonb)
    on conflict (name) do update set
        paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_why = excluded.paused_why,
        closed_at = excluded.closed_at, closed_by = excluded.closed_by, closed_why = excluded.closed_why,
        priority = excluded.priority, max_attempts = excluded.max_attempts, timeout = excluded.timeout,
        keep_history = excluded.keep_history, keep_dead = excluded.keep_dead, backlog = excluded.backlog,
        when_full = excluded.when_full, ageing = excluded.ageing, ageing_to = excluded.ageing_to,
        set_at = excluded.set_at, set_by = excluded.set_by
)
insert into pgqueue.limits select * from jsonb_populate_recordset(null::pgqueue.limits, %(limits)s::jsonb)
on conflict (name) do update set most = excluded.most, every = excluded.every, burst = excluded.burst,
                                set_at = excluded.set_at, set_by = excluded.set_by
