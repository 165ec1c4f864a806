-- departed: workers that went and may have left jobs behind; whoever is told sees to them.
-- index: none (hardly ever a row)
-- locks: those rows, skipping locked ones
-- run by: worker upkeep, take
select worker_id from pgqueue.departed for update skip locked
