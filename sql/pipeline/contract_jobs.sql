-- pipeline/contract_jobs: how many live jobs of a task have an argument, or have it not; of no argument: how many there are.
-- index: none: reads all live jobs
-- locks: none
-- run by: pipeline check
-- rights: reader
-- why: `json` takes numbers that `jsonb` refuses (1e400000), and one such job must not stop the check
select asked.number::integer,
       count(*) filter (where asked.argument is null or (job.args::json -> asked.argument is not null) = asked.has)
from unnest(%(tasks)s::text[], %(arguments)s::text[], %(has)s::boolean[]) with ordinality as asked (task, argument, has, number)
join pgqueue.jobs as job on job.task = asked.task
group by asked.number
