-- insight/run_above: the first id above those of a run; 0: there is no such run.
-- index: none: sink_writes_run, in the function
-- locks: none
-- run by: Insight.search
-- rights: monitor
select coalesce(upper(pgqueue.jobs_of_run(%(run)s::text)), 0)
