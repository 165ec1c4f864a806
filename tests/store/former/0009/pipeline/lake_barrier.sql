-- pipeline/lake_barrier: take the number of a new transaction: all transactions in progress have lower ones.
-- index: none
-- locks: none
-- run by: pipeline export
-- why: a snapshot's xmax is not enough: it is only higher than the transactions that have ended
select txid_current()
