-- limits/running: how many jobs of each lane run now that were claimed from a number on, and the first number; and under these keys keep their place while they wait for their retry.
-- index: jobs_running_in_lanes, jobs_kept_places
-- locks: none
-- run by: a claim from lanes, after it has locked the limits, in the same transaction
-- rights: monitor
-- why: counted from the jobs themselves: however a job stops running, its place is free, and no crash can lose one. Few
--      jobs run, but 100,000 keys may each have a job that waits for its retry: only those of the keys that the claim looks at
--      are read. They hold places of their keys, and none of their queue's as a whole: so they are counted without a queue.
--      A job without a number is always counted: another statement set it running, or changed its lane while it ran
select queue, lane, count(*), min(claim_number)
from (select queue, lane, claim_number from pgqueue.jobs
      where status = 'running' and lane is not null and worker_id is not null and coalesce(claim_number, 9223372036854775807) >= %(since)s::bigint
      union all
      select null, lane, null from pgqueue.jobs
      where place_at is not null and string_to_array(lane, E'\n') && %(keys)s::text[]) as held
group by queue, lane
