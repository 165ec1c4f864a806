-- flows/list: flows that match every filter given, newest first, and the states of the jobs of those that are not too large.
-- index: flows_pkey, nodes_flow
-- locks: none
-- run by: PgQueue.flows
-- rights: monitor
-- why: the order is that of the index: where statistics know large flows only, all nodes would be read for each flow
with page as materialized (
    select * from pgqueue.flows
    where (%(states)s::text[] is null or state = any(%(states)s::text[]))
      and (%(kind)s::text is null or kind = %(kind)s::text) and (%(name)s::text is null or name = %(name)s::text)
      and (%(key)s::text is null or key = %(key)s::text) and id < %(before)s::bigint
    order by id desc
    limit %(limit)s::integer
)
select page.id, page.kind, page.name, page.key, page.state, page.created_at, page.ended_at,
       case when counted.nodes <= %(most)s::integer then counted.states end
from page
cross join lateral (
    select sum(nodes) as nodes, json_object_agg(state, jobs)::text as states
    from (select state, count(*) as nodes, count(*) filter (where kind = 'job' and not (task = 'pgqueue.map' and state = 'succeeded')) as jobs
          from (select state, kind, task from pgqueue.nodes where flow_id = page.id
                order by parent_id, place limit %(most)s::integer + 1) as part
          group by state) as by_state) as counted
order by page.id desc
