-- The column of jobs for kept places, and its index.
-- run by: the revision, in its transaction; before it by pgqueue.store.ahead where the tables are large, and then each index is
-- built concurrently. So each statement here does nothing if it has been done.

-- A column without a default, and which may be null, is added without reading or writing a row. No job has an entry in the index
-- at first, but to build it all live jobs are read.
alter table pgqueue.jobs add column if not exists place_at timestamptz;
-- It finds kept places by each key of a lane: there may be many, and a claim must not read them all.
create index if not exists jobs_kept_places on pgqueue.jobs using gin (string_to_array(lane, E'\n')) with (fastupdate = off)
    where place_at is not null;
