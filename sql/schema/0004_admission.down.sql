-- Removes what blocked jobs wait for; jobs that are blocked are ready, or scheduled, then.

update pgqueue.jobs set status = case when run_at > now() then 'scheduled' else 'ready' end
where id = any(array(select job_id from pgqueue.waits)) and status = 'blocked';
drop table pgqueue.waits;
