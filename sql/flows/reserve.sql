-- flows/reserve: take ids for nodes before they are written; as runs, first and last of each.
-- index: none
-- locks: none
-- run by: the plan that enqueues flows
-- rights: producer --also flows
select min(id), max(id)
from (select id, id - row_number() over (order by id) as run
      from (select nextval('pgqueue.nodes_id_seq') as id from generate_series(1, %(count)s::integer)) as taken
     ) as numbered
group by run order by run
