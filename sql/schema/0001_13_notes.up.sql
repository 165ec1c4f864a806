-- What a running job notes for its later attempts and for those who watch it: steps, a checkpoint, its progress, log lines.

-- A table of its own, not columns of jobs: most jobs note nothing, and a row of jobs is written as rarely as possible.
-- Values are json, which is read back as it was written: jsonb would give later attempts other orders of keys.
-- The kind "start": under which fence an attempt of a job began whose worker had died before. The kind "log": the last lines that
-- an attempt logged; the name is the attempt's number modulo 20, so that a job has no more than 20 of them.
create table pgqueue.notes (
    job_id bigint      not null,
    kind   text        not null check (kind in ('step', 'checkpoint', 'progress', 'start', 'log')),
    name   text        not null default '' check (length(name) <= 200),
    value  json        not null,
    at     timestamptz not null default now(),
    primary key (job_id, kind, name)
) with (fillfactor = 70);
comment on table pgqueue.notes is
    'What attempts note: results of steps and a checkpoint, for later attempts; progress; log lines. Removed some time after the job ended, log lines some time after its record is gone.';
comment on column pgqueue.notes.job_id is 'The job that noted it.';
comment on column pgqueue.notes.kind is 'step, checkpoint, progress or log.';
comment on column pgqueue.notes.value is 'What was noted.';
comment on column pgqueue.notes.at is 'When it was noted.';
comment on column pgqueue.notes.name is 'Which step; of a log, the attempt modulo 20; empty for a checkpoint and for progress.';
