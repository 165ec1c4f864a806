-- Takes away what workers say of how they look for jobs.
alter table pgqueue.workers
    drop column cannot_listen_since,
    drop column look_within,
    drop column looked_at;
