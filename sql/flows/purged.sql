-- flows/purged: failed nodes for whose retry others wait, and which cannot succeed: a failed job of them has no record any more.
-- index: flows_live, nodes_flow, edges_pkey, dead_jobs_pkey, jobs_pkey
-- locks: none
-- run by: worker upkeep
-- rights: monitor
select node.id
from pgqueue.nodes as node
where node.flow_id = any(array(select id from pgqueue.flows where ended_at is null)) and node.state = 'failed'
  and exists (select from pgqueue.edges where from_id = node.id and rule = 'wait')
  and exists (
      with recursive inside (id, kind, job_id) as (
          select node.id, node.kind, node.job_id
          union all
          select member.id, member.kind, member.job_id
          from inside join pgqueue.nodes as member
              on member.flow_id = node.flow_id and member.parent_id = inside.id and member.state = 'failed'
          where inside.kind <> 'job'
      )
      select from inside
      where kind = 'job' and not exists (select from pgqueue.dead_jobs where id = inside.job_id)
        and not exists (select from pgqueue.jobs where id = inside.job_id))
limit %(limit)s::integer
