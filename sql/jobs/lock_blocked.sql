-- jobs/lock_blocked: lock the blocked jobs that wait for any of these reasons.
-- index: waits_pkey, jobs_pkey
-- locks: the returned rows, in the order of their ids; waits for rows that another transaction has locked
-- run by: the plan that admits jobs, before admit
-- why: where two transactions remove one reason each of the same job, the second must see what the first has done: it waits
--      here, and its next statement sees that
select id from pgqueue.jobs
where id = any(array(select job_id from pgqueue.waits where waits_for = any(%(reasons)s::text[]))) and status = 'blocked'
order by id
for update
