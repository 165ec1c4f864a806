-- insight/deploys: the deploys: time and version.
-- index: none
-- locks: none
-- run by: pipeline export, Insight.deploys
-- rights: monitor
select deployed_at, version from pgqueue.deploys order by deployed_at
