-- workers/drop_contracts: of each of these tasks, forget all contracts but the 20 that were said last.
-- index: task_contracts_pkey
-- locks: the rows that go; those that another worker has locked are left to it
-- run by: worker start, after it has stored a contract
-- rights: worker
delete from pgqueue.task_contracts as former
using (
    select old.task, old.hash from pgqueue.task_contracts as old
    where (old.task, old.hash) in (
        select task, hash from (
            select task, hash, row_number() over (partition by task order by last_seen desc, hash) as place
            from pgqueue.task_contracts where task = any(%(tasks)s::text[])) as ranked
        where place > 20)
    for update skip locked
) as old
where former.task = old.task and former.hash = old.hash
