-- What a worker says with each heartbeat of how it looks for jobs: when it last did, within which time it does again, and
-- whether notifications arrive.

-- Columns without a default, and which may be null, are added without reading or writing a row. Workers of former releases
-- leave them null: of these it is not known.
alter table pgqueue.workers
    add column looked_at timestamptz,
    add column look_within double precision,
    add column cannot_listen_since timestamptz;
comment on column pgqueue.workers.looked_at is
    'When it last claimed jobs, asked and found none, or had no free slot, at its last heartbeat; null: it stops, or not known.';
comment on column pgqueue.workers.look_within is
    'After this many seconds without a later looked_at, the worker does not serve; null: not known.';
comment on column pgqueue.workers.cannot_listen_since is
    'Since when notifications have not arrived, at its last heartbeat; null: they do, are not expected, or not known.';
