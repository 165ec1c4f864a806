-- pipeline/lake_deploys: the deploys: time and version.
-- index: none
-- locks: none
-- run by: pipeline export
select deployed_at, version from pgqueue.deploys order by deployed_at
