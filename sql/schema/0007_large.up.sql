-- The columns of jobs for lanes and expiry, and their indices.
-- run by: the revision, in its transaction; before it by pgqueue.store.ahead where the tables are large, and then each index is
-- built concurrently. So each statement here does nothing if it has been done.

-- Columns without a default, and which may be null, are added without reading or writing a row. No job has an entry in one of
-- the indices at first, but to build each of them all live jobs are read.
alter table pgqueue.jobs add column if not exists expires_at timestamptz,
    add column if not exists lane text, add column if not exists in_lane boolean, add column if not exists cost integer;
-- A running job has no entry, so that a job which runs for long is not looked at.
create index if not exists jobs_expires_at on pgqueue.jobs (expires_at) where expires_at is not null and status <> 'running';
create index if not exists jobs_lanes on pgqueue.jobs (queue, lane, (-priority), run_at, id) where in_lane;
create index if not exists jobs_running_in_lanes on pgqueue.jobs (queue, lane) where status = 'running' and lane is not null;
