-- deploys: record the deploys of a made-up history.
-- index: deploys_pkey
-- locks: none beyond the new rows
-- run by: pgqueue pipeline generate
insert into pgqueue.deploys (deployed_at, version)
select instant, version from unnest(%(instants)s::timestamptz[], %(versions)s::text[]) as one (instant, version)
on conflict do nothing
