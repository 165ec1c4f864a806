-- flows/show_counts: how many members of each group of a flow are in which state, and whether they are jobs. What has filled a group is left out.
-- index: nodes_flow
-- locks: none
-- run by: PgQueue.flow
-- rights: monitor
select parent_id, kind = 'job', state, count(*) from pgqueue.nodes
where flow_id = %(flow)s::bigint and parent_id is not null
  and (task is distinct from 'pgqueue.map' or state <> 'succeeded')
group by 1, 2, 3
