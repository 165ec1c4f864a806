-- crew: record the workers of a made-up history, as former workers.
-- index: former_workers_pkey
-- locks: none beyond the new rows
-- run by: pgqueue pipeline generate
insert into pgqueue.former_workers (id, started_at, ended_at, concurrency, host, version)
select id, started_at, ended_at, concurrency, host, %(version)s::text
from unnest(%(ids)s::uuid[], %(started_at)s::timestamptz[], %(ended_at)s::timestamptz[], %(concurrency)s::integer[],
            %(hosts)s::text[]) as one (id, started_at, ended_at, concurrency, host)
on conflict do nothing
