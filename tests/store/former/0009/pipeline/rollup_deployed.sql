-- pipeline/rollup_deployed: record a deploy: a version of the user's code and its time; a second record of one time replaces the first.
-- index: deploys_pkey
-- locks: that instant's row
-- run by: pgqueue pipeline deployed
insert into pgqueue.deploys (deployed_at, version)
values (coalesce(%(at)s::timestamptz, now()), %(version)s::text)
on conflict (deployed_at) do update set version = excluded.version
returning deployed_at
