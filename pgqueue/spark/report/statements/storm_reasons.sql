-- The most frequent reason of each storm's failures, and its share of them.
with by_reason as (
    select storm, error_type, reason, sum(failures) as failures
    from failures
    join stormy using (queue, task, hour)
    group by storm, error_type, reason
)
select
    storm,
    max(struct_pack(failures := failures, error_type := error_type, reason := reason)) as most,
    max(failures) / sum(failures) as share
from by_reason
group by storm
