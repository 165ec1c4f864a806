-- reserve_ids: take ids for a batch before it is written, so that COPY can return handles.
-- index: none
-- locks: none
-- run by: PgQueue.enqueue_many
select nextval('pgqueue.jobs_id_seq') from generate_series(1, %(count)s::integer)
