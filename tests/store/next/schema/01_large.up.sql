-- The columns of large tables, and their indices.
-- run by: the revision, in its transaction; before it by pgqueue.store.schema.build_ahead where the tables are large, and then each index is
-- built concurrently. So each statement here does nothing if it has been done.

alter table pgqueue.jobs add column if not exists region text not null default 'here';
alter table pgqueue.job_history add column if not exists region text not null default 'here';
create index if not exists jobs_region on pgqueue.jobs (region) where status = 'blocked';
create index if not exists job_history_region on pgqueue.job_history (region);
