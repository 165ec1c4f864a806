-- limits/set: store the numbers of a limit.
-- index: limits_pkey
-- locks: its row; a claim that has locked it is waited for
-- run by: queue.control.limits
insert into pgqueue.limits as known (name, most, every, burst, declared, set_at, set_by)
values (%(name)s::text, %(most)s::integer, %(every)s::bigint, %(burst)s::bigint, %(declared)s::text,
        case when not %(as_declared)s::boolean then coalesce(%(now)s::timestamptz, now()) end,
        %(by)s::text)
on conflict (name) do update
set most = excluded.most, every = excluded.every, burst = excluded.burst, set_at = excluded.set_at, set_by = excluded.set_by
