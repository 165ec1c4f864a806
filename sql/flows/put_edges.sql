-- flows/put_edges: set which edges are met.
-- index: edges_pkey
-- locks: those edges; the caller has locked the flow
-- run by: PgQueue.retry_flow
-- rights: producer --also flows
update pgqueue.edges as edge set met = given.met
from unnest(%(froms)s::bigint[], %(tos)s::bigint[], %(mets)s::boolean[]) as given (from_id, to_id, met)
where edge.from_id = any(%(froms)s::bigint[]) and edge.from_id = given.from_id and edge.to_id = given.to_id
