-- jobs/reserve_ids: take ids for a batch before it is written, so that COPY can return handles; as runs, first and last of each.
-- index: none
-- locks: none
-- run by: PgQueue.enqueue_many
-- rights: producer --also flows
-- why: others take ids meanwhile, so there may be several runs, but there is no need to send a row for each id
select min(id), max(id)
from (select id, id - row_number() over (order by id) as run
      from (select nextval('pgqueue.jobs_id_seq') as id from generate_series(1, %(count)s::integer)) as taken
     ) as numbered
group by run order by run
