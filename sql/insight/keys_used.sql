-- insight/keys_used: how many rows of each table need which key to be decrypted, by the names that encrypted texts begin with.
-- index: none: every row is read
-- locks: none
-- run by: pgqueue keys used
-- why: a text is "x1:RING:KEY:...", where the ring is s (shared) or t (a tenant's). A row that needs two keys counts for both
with texts as (
    select 'jobs' as place, concat(args, errors) as text from pgqueue.jobs
    union all select 'job_history', concat(args, errors, result) from pgqueue.job_history
    union all select 'dead_jobs', concat(args, errors) from pgqueue.dead_jobs
    union all select 'notes', value::text from pgqueue.notes
    union all select 'signals', payload::text from pgqueue.signals
    union all select 'schedules', args::text from pgqueue.schedules
)
select place, found.ring, found.key, count(*)
from texts cross join lateral (
    select distinct named[1], named[2] from regexp_matches(text, '"x1:([st]):([^":]+):', 'g') as named
) as found (ring, key)
group by place, found.ring, found.key
order by place, found.ring, found.key
