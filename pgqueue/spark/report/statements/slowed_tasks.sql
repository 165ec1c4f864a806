-- Tasks whose jobs waited longer in a storm's hours than usual at that hour of the day: those of its queue first, the worst first.
with waits as (
    select queue, task, hour, hour % 24 as time, wait_p90 as wait
    from hours
    where jobs >= $fewest_jobs
),
meanwhile as (
    select storm, stormy.queue = waits.queue as beside, waits.*
    from waits
    join stormy using (hour)
    where waits.queue <> stormy.queue or waits.task <> stormy.task
),
usual as (
    select queue, task, time, median(wait) as usual
    from waits
    semi join meanwhile using (queue, task, time)
    group by queue, task, time
)
select storm, queue, task, beside, max(struct_pack(wait := wait, usual := usual)) as worst
from meanwhile
join usual using (queue, task, time)
where wait >= $ratio * usual and wait - usual >= $seconds
group by storm, queue, task, beside
order by beside desc, worst desc
limit $most
