-- pipeline/rollup_deployed: note when which version of the user's code went live; said twice of one instant, the last word counts.
-- index: deploys_pkey
-- locks: that instant's row
-- run by: pgqueue pipeline deployed
insert into pgqueue.deploys (deployed_at, version)
values (coalesce(%(at)s::timestamptz, now()), %(version)s::text)
on conflict (deployed_at) do update set version = excluded.version
returning deployed_at
