-- insight/last_deploy: when which version of the app's code went live last, not before an instant.
-- index: deploys_pkey
-- locks: none
-- run by: Insight.health
-- rights: monitor
select pgqueue.as_datetime(deployed_at), version from pgqueue.deploys
where deployed_at <= coalesce(%(now)s::timestamptz, now())
  and deployed_at > coalesce(%(now)s::timestamptz, now()) - %(within)s::interval
order by deployed_at desc limit 1
