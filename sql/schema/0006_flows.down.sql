-- Drops flows. Their jobs stay; those that waited for others are ready, or scheduled (revision 0004).

drop table pgqueue.flow_work;
drop table pgqueue.node_counts;
drop table pgqueue.edges;
drop table pgqueue.nodes;
drop table pgqueue.flows;
