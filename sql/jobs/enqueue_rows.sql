-- jobs/enqueue_rows: add many jobs without unique keys, as a role that may not choose their ids; the ids, in the order of the jobs.
-- index: none
-- locks: none beyond the new rows
-- run by: PgQueue.enqueue_many
-- rights: producer
-- why: COPY tells no ids, so its ids are taken before; a producer that chose an id ahead of the sequence would stop other programs' enqueues
insert into pgqueue.jobs ({new}, {limited}, status, in_lane)
select {new: new.NAME}, {limited: new.NAME},
       case when new.run_at > clock.now then 'scheduled' when new.lane is null then 'ready' else 'blocked' end,
       case when new.lane is not null and new.run_at <= clock.now then true end
from (select coalesce(%(now)s::timestamptz, now()) as now) as clock,
     unnest({new: %(NAME)s::TYPE[]}, {limited: %(NAME)s::TYPE[]}) with ordinality as new ({new}, {limited}, place)
order by place
returning id
