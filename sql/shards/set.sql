-- shards/set: say which shard this database is, on which shards keys live, and whether keys are moving.
-- index: none
-- locks: the shard's row
-- run by: pgqueue shards init, add, finish
insert into pgqueue.shard (number, members, moving) values (%(number)s::integer, %(members)s::integer[], %(moving)s::boolean)
on conflict (number) do update set members = excluded.members, moving = excluded.moving
