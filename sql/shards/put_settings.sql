-- shards/put_settings: store what operators have said of queues and limits on the other shards.
-- index: queues_pkey, limits_pkey
-- locks: the rows of both tables that are added
-- run by: pgqueue shards add
with queues as (
    insert into pgqueue.queues select * from jsonb_populate_recordset(null::pgqueue.queues, %(queues)s::jsonb)
    on conflict (name) do nothing
)
insert into pgqueue.limits select * from jsonb_populate_recordset(null::pgqueue.limits, %(limits)s::jsonb)
on conflict (name) do nothing
