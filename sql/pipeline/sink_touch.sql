-- pipeline/sink_touch: record that an attempt at a partition is about to stage rows, so that they can be found and deleted.
-- index: sink_attempts_pkey
-- locks: the attempt's row, until its rows are staged
-- run by: the sink, on executors
-- rights: producer --also spark
insert into pgqueue.sink_attempts as attempt (id, write_id, partition)
values (%(attempt)s::uuid, %(write)s::uuid, %(partition)s::integer)
on conflict (id) do update set staged_at = now()
