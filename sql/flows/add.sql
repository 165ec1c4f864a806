-- flows/add: add a flow; its id and state. If another flow of its key runs, it waits.
-- index: flows_key
-- locks: none beyond the new row; lock_key has locked the key
-- run by: the plan that enqueues flows
-- rights: producer --also flows
insert into pgqueue.flows (kind, name, key, state, created_at)
select %(kind)s::text, %(name)s::text, %(key)s::text,
       case when exists (select from pgqueue.flows where key = %(key)s::text and ended_at is null) then 'waiting' else 'running' end,
       coalesce(%(now)s::timestamptz, now())
returning id, state
