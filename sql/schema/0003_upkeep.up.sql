-- What keeps the queue in order, so that no row, reader or role holds it up; and who may do what.

comment on column pgqueue.jobs.claims is
    'The number of the claim that took it. No worker uses a number twice: with the worker, it says which attempt holds the job.';
