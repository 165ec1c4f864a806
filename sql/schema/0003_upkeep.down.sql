-- Puts back what kept the queue in order before.

comment on column pgqueue.jobs.claims is
    'How many times it was claimed, returned claims included: with the worker, who may speak for it.';
