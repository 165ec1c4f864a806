-- The load of each day, in seconds of run time, and what its workers could have run; and the load of its busiest hour.
with slots as (
    select hour, sum(concurrency * alive_seconds) as slots
    from workers
    group by hour
),
by_hour as (
    select hour // 24 as day, coalesce(busy_seconds, 0) as busy, slots
    from busy
    full outer join slots using (hour)
)
select day, sum(busy) as busy, sum(slots) as slots, max(case when slots >= $fewest_slots then busy / slots end) as peak
from by_hour
group by day
