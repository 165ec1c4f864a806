-- retention/look_again: note that days may have jobs again which queues without a length of their own do not keep: a queue has given up its length.
-- index: none (one row)
-- locks: that row
-- run by: QueueControl.declare, QueueControl.set
update pgqueue.retention set history_cut = null where history_cut is not null
