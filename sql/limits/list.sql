-- limits/list: every limit, and what it says.
-- index: none: a row for each limit
-- locks: none
-- run by: Insight.limits, Insight.limit
-- rights: monitor
select name, most, every, burst, declared, set_at, set_by from pgqueue.limits order by name
