-- What a running job notes for its later attempts and for those who watch it: steps, a checkpoint, its progress.

-- A table of its own, not columns of jobs: most jobs note nothing, and a row of jobs is written as rarely as possible.
-- Values are json, which is read back as it was written: jsonb would give later attempts other orders of keys.
-- The kind "start": under which fence an attempt of a job began whose worker had died before.
create table pgqueue.notes (
    job_id bigint      not null,
    kind   text        not null check (kind in ('step', 'checkpoint', 'progress', 'start')),
    name   text        not null default '' check (length(name) <= 200),
    value  json        not null,
    at     timestamptz not null default now(),
    primary key (job_id, kind, name)
) with (fillfactor = 70);
comment on table pgqueue.notes is
    'What attempts note: results of steps and a checkpoint, for later attempts; progress. Removed some time after the job ended.';
comment on column pgqueue.notes.name is 'Which step; empty for a checkpoint and for progress.';
