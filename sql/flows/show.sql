-- flows/show: a flow, and the flow of its key for which it waits.
-- index: flows_pkey, flows_key
-- locks: none
-- run by: PgQueue.flow, FlowHandle.join
-- rights: monitor
select id, kind, name, key, state, created_at, ended_at,
       case when state = 'waiting' then (
           select min(other.id) from pgqueue.flows as other
           where other.key = flow.key and other.ended_at is null and other.id < flow.id) end
from pgqueue.flows as flow where id = %(flow)s::bigint
