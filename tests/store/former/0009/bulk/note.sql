-- bulk/note: write down what an operation did to a portion of its jobs, and how far it is.
-- index: audit_pkey
-- locks: the operation's row
-- run by: QueueControl.jobs, QueueControl.dead, in the transaction that changes the jobs
update pgqueue.audit as operation
set jobs = operation.jobs + %(done)s::bigint,
    counts = (select coalesce(jsonb_object_agg(key, number), '{}')
              from (select key, sum(value::bigint) as number
                    from (select * from jsonb_each_text(operation.counts)
                          union all select * from jsonb_each_text(%(counts)s::jsonb)) as one
                    group by key) as summed),
    after_id = greatest(operation.after_id, %(after)s::bigint),
    later = array(select id from unnest(operation.later) as id where id <> all(%(tried)s::bigint[])
                  union select unnest(%(missed)s::bigint[]) order by 1),
    ended_at = coalesce(operation.ended_at,  -- another program that continues it may have ended it first
                        case when %(ends)s::boolean then coalesce(%(now)s::timestamptz, now()) end)
where id = %(operation)s::bigint
