-- Failed attempts by hour, queue, task, type of error and reason.
select
    day,
    timestamp_micros(unix_micros(ended_at) - pmod(unix_micros(ended_at), 3600000000)) as hour,
    queue,
    task,
    error_type,
    reason,
    count(*) as failures,
    count_if(is_first) as jobs,
    count_if(is_fatal) as dead,
    min(failed_at) as first_at,
    max(failed_at) as last_at,
    min(sample) as sample
from {failed}
group by 1, 2, 3, 4, 5, 6
