-- shards/remaining: how many keys still live here whose home is the last member.
-- index: none: reads all jobs with keys, once for each look of an operator
-- locks: none
-- run by: pgqueue shards finish, pgqueue shards list
select count(distinct key)
from (select pgqueue.shard_key(unique_key, lane) as key from pgqueue.jobs where unique_key is not null or lane is not null
      union all
      select unique_key from pgqueue.unique_holds where held_until > clock_timestamp()
      union all
      select key from pgqueue.rates where tat > extract(epoch from clock_timestamp()) * 1000000
      union all
      select key from pgqueue.flows where key is not null and ended_at is null) as living
where pgqueue.shard_of(key, (select members from pgqueue.shard)) <> (select number from pgqueue.shard)
