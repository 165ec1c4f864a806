-- pipeline/lake_barrier: take the number of a transaction: whatever is in progress now has a lower one.
-- index: none
-- locks: none
-- run by: pipeline export
-- why: a snapshot's xmax will not do, for it is only above the transactions that have ended
select txid_current()
