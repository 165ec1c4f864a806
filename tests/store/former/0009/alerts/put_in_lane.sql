-- alerts/put_in_lane: give the job of an alert its lane, where its task has limits.
-- index: none: put_in_lanes uses jobs_pkey
-- locks: that job, which this transaction has added
-- run by: worker upkeep, drain
select pgqueue.put_in_lanes(array[%(id)s::bigint])
