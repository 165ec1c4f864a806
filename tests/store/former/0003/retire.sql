-- retire: a worker that has left the list had nothing in hand: nobody needs to look for it.
-- index: departed_pkey
-- locks: that row
-- run by: worker stop, take
delete from pgqueue.departed where worker_id = %(worker)s::uuid
