-- pipeline/lake_deploys: when which version went live.
-- index: none
-- locks: none
-- run by: pipeline export
select deployed_at, version from pgqueue.deploys order by deployed_at
