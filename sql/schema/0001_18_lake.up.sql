-- What the data pipeline notes: when the code changed, and which days of the history are safely in a lake.

create table pgqueue.deploys (
    deployed_at timestamptz primary key default now(),
    version     text        not null
);
comment on table pgqueue.deploys is 'When which version of your code went live, as `pgqueue pipeline deployed` was told.';
comment on column pgqueue.deploys.deployed_at is 'When it went live.';
comment on column pgqueue.deploys.version is 'The version of your code, as given to `pgqueue pipeline deployed`.';

create table pgqueue.lake_days (
    day          date        primary key,
    history_rows bigint      not null,
    dead_rows    bigint      not null,
    checksum     numeric     not null,
    below        bigint      not null,
    pruned_below bigint      not null default 0,
    verified_at  timestamptz not null default now(),
    lake         text        not null
);
comment on table pgqueue.lake_days is 'Days of the history that are verified in a lake. While there are any, only such days are dropped.';
comment on column pgqueue.lake_days.day is 'The UTC day.';
comment on column pgqueue.lake_days.lake is 'The lake in which it is verified.';
comment on column pgqueue.lake_days.verified_at is 'Since when.';
comment on column pgqueue.lake_days.history_rows is 'How many of its ended jobs are in the lake.';
comment on column pgqueue.lake_days.dead_rows is 'How many of its dead jobs are in the lake.';
comment on column pgqueue.lake_days.checksum is 'Of the rows in the history; dead jobs may be retried or purged later.';
comment on column pgqueue.lake_days.below is 'The rows of transactions below this number are in the lake.';
comment on column pgqueue.lake_days.pruned_below is 'The rows of transactions below this number have been dropped from the history; 0: none have.';

-- Deletes ended jobs, and what pgqueue keeps of them elsewhere, once no row of the job is left: a job that was retried or revived keeps
-- its notes. A flow loses its name and key when it has ended and all its jobs are erased, or where they contain one of the texts.
-- The texts are what the caller chose the jobs by, such as a key; one of over 1,000 characters is not looked for. Returns how many
-- jobs there were.
-- callers: pipeline
create function pgqueue.erase_ended(ended_on date, ids bigint[], transactions bigint[], texts text[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    -- a text counts as a whole word: a tenant 4 is not found in 42
    named constant text := (select string_agg('(^|\W)' || regexp_replace(one, '(\W)', '\\\1', 'g') || '($|\W)', '|')
                            from unnest(texts) as one where length(one) between 1 and 1000);
    -- the texts as JSON spells them: an entry of the audit without one is not searched by words, which takes as long as a text is
    spelled constant text[] := array(select upper(substr(quoted, 2, length(quoted) - 2))
                                     from unnest(texts) as one, cast(to_jsonb(one) as text) as quoted where length(one) between 1 and 1000);
    erased bigint;
    gone   bigint[];
    flow   bigint[];
begin
    with unwanted as (
        select * from unnest(ids, transactions) as unwanted (id, ended_in)
    ),
    history as (
        delete from pgqueue.job_history using unwanted
        where job_history.id = unwanted.id and job_history.ended_in = unwanted.ended_in
          and finished_at >= ended_on::timestamp at time zone 'UTC'
          and finished_at < (ended_on + 1)::timestamp at time zone 'UTC'
        returning 1
    ),
    dead as (
        delete from pgqueue.dead_jobs using unwanted
        where dead_jobs.id = unwanted.id and dead_jobs.ended_in = unwanted.ended_in
        returning 1
    )
    select (select count(*) from history) + (select count(*) from dead) into erased;

    gone := array(select one from unnest(ids) as one where not exists (select from pgqueue.all_jobs where id = one));
    delete from pgqueue.notes where job_id = any(gone);
    delete from pgqueue.stacks where job_id = any(gone);
    delete from pgqueue.waits where job_id = any(gone);
    delete from pgqueue.deadlines where job_id = any(gone);
    delete from pgqueue.unique_holds where job_id = any(gone);
    delete from pgqueue.sink_rejected where job_id = any(gone) or concat_ws(' ', unique_key, key::text) ~* named;
    delete from pgqueue.sink_refused where concat_ws(' ', contents, reason, key::text) ~* named;
    delete from pgqueue.signals where target = any(array(select 'job:' || one from unnest(gone) as one));

    -- what follows in a live flow reads the meta and the result of a job; they stay until the flow has ended
    flow := array(select distinct node.flow_id from pgqueue.nodes as node join pgqueue.flows on flows.id = node.flow_id
                  where node.job_id = any(gone) and flows.ended_at is not null);
    update pgqueue.nodes set result = null, spec = null, name = null where job_id = any(gone) and flow_id = any(flow);
    update pgqueue.flows set name = 'erased', key = null
    where id = any(flow)
      and (name ~* named or key ~* named
           or not exists (select from pgqueue.nodes as node join pgqueue.all_jobs as job on job.id = node.job_id
                          where node.flow_id = flows.id));
    delete from pgqueue.signals where target = any(array(select 'flow:' || id from pgqueue.flows where id = any(flow)));
    -- what was said, not the names of pgqueue's own fields; the arguments of a filter have names of the app's
    update pgqueue.audit set details = '{"erased": true}'
    where (ended_at is not null or after_id is null)
      and case when exists (select from unnest(spelled) as one where strpos(upper(details::text), one) > 0) then
              details #>> '{filter,args}' ~* named
              or exists (select from jsonb_path_query(details, 'strict $.**') as part
                         where jsonb_typeof(part) not in ('object', 'array') and part #>> '{}' ~* named)
          end;
    return erased;
end $$;
