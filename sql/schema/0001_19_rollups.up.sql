-- What the pipeline's roll-ups are written to, for anything that plots.

create table pgqueue.rollup_made (
    day       date        primary key,
    made_from text        not null,
    made_at   timestamptz not null default now()
);
comment on table pgqueue.rollup_made is 'The days that are in the roll-ups; each is replaced as a whole.';
comment on column pgqueue.rollup_made.day is 'The UTC day.';
comment on column pgqueue.rollup_made.made_at is 'Since when it is in the roll-ups.';
comment on column pgqueue.rollup_made.made_from is 'Which state of the lake and of pipeline.toml the figures are of.';

create table pgqueue.rollup_days (
    day           date             not null,
    queue         text             not null,
    task          text             not null,
    jobs          bigint           not null,
    succeeded     bigint           not null,
    cancelled     bigint           not null,
    dead          bigint           not null,
    attempts      bigint           not null,
    retries       bigint           not null,
    run_seconds   double precision not null,
    wait_seconds  double precision not null,
    busy_seconds  double precision not null,
    wait_p50      double precision,
    wait_p90      double precision,
    wait_p99      double precision,
    run_p50       double precision,
    run_p90       double precision,
    run_p99       double precision,
    wait_sketch   bytea,
    run_sketch    bytea,
    slo_good      bigint,
    slo_total     bigint,
    slo_objective double precision,
    slo_attained  double precision,
    slo_burn      double precision,
    primary key (day, queue, task)
);
comment on table pgqueue.rollup_days is 'Ended jobs per day (UTC), queue and task, merged from the hours. Times are in seconds.';
comment on column pgqueue.rollup_days.day is 'The day on which the jobs ended.';
comment on column pgqueue.rollup_days.queue is 'Their queue.';
comment on column pgqueue.rollup_days.task is 'Their task.';
comment on column pgqueue.rollup_days.jobs is 'How many jobs ended.';
comment on column pgqueue.rollup_days.succeeded is 'How many of them succeeded.';
comment on column pgqueue.rollup_days.cancelled is 'How many were cancelled.';
comment on column pgqueue.rollup_days.dead is 'How many died.';
comment on column pgqueue.rollup_days.attempts is 'The attempts of these jobs.';
comment on column pgqueue.rollup_days.wait_p50 is 'Half of the waits were at most this long.';
comment on column pgqueue.rollup_days.wait_p90 is '90 % of them.';
comment on column pgqueue.rollup_days.wait_p99 is '99 % of them.';
comment on column pgqueue.rollup_days.run_p50 is 'Half of the last attempts ran at most this long.';
comment on column pgqueue.rollup_days.run_p90 is '90 % of them.';
comment on column pgqueue.rollup_days.run_p99 is '99 % of them.';
comment on column pgqueue.rollup_days.run_sketch is 'A KLL sketch of how long last attempts ran, as wait_sketch.';
comment on column pgqueue.rollup_days.slo_objective is 'The promised share; null: no promise.';
comment on column pgqueue.rollup_days.slo_attained is 'The share of jobs that kept the promise.';
comment on column pgqueue.rollup_days.retries is 'Attempts after the first one.';
comment on column pgqueue.rollup_days.run_seconds is 'The last attempts of the jobs that ended then.';
comment on column pgqueue.rollup_days.wait_seconds is 'From when they were due to the start of their last attempts.';
comment on column pgqueue.rollup_days.busy_seconds is 'The part of last attempts that lies in this time, whenever the jobs ended.';
comment on column pgqueue.rollup_days.wait_sketch is
    'A KLL sketch of doubles (Apache DataSketches); Spark''s kll_merge_agg_double merges those of any span.';
comment on column pgqueue.rollup_days.slo_good is 'Jobs that kept the promise; null: none was made.';
comment on column pgqueue.rollup_days.slo_total is 'Jobs that it was about: succeeded or dead ones.';
comment on column pgqueue.rollup_days.slo_burn is 'How fast the allowed failures are used up: (1 - attained) / (1 - objective); 1: just kept.';

create table pgqueue.rollup_hours (
    hour timestamptz not null,
    like pgqueue.rollup_days including comments,
    primary key (day, queue, task, hour)
);
comment on table pgqueue.rollup_hours is 'Ended jobs per hour (UTC), queue and task, as in rollup_days.';
comment on column pgqueue.rollup_hours.hour is 'In which the jobs ended; for busy_seconds, in which they ran.';

create table pgqueue.rollup_failures (
    day        date        not null,
    hour       timestamptz not null,
    queue      text        not null,
    task       text        not null,
    error_type text        not null,
    reason     text        not null,
    failures   bigint      not null,
    jobs       bigint      not null,
    dead       bigint      not null,
    first_at   timestamptz,
    last_at    timestamptz,
    sample     text        not null,
    primary key (day, hour, queue, task, error_type, reason)
);
comment on table pgqueue.rollup_failures is 'Why attempts failed, those of jobs that succeeded later among them.';
comment on column pgqueue.rollup_failures.day is 'The day on which the jobs ended.';
comment on column pgqueue.rollup_failures.queue is 'Their queue.';
comment on column pgqueue.rollup_failures.task is 'Their task.';
comment on column pgqueue.rollup_failures.error_type is 'The exception.';
comment on column pgqueue.rollup_failures.first_at is 'The first of these failures.';
comment on column pgqueue.rollup_failures.last_at is 'The last of them.';
comment on column pgqueue.rollup_failures.hour is 'The hour in which their jobs ended.';
comment on column pgqueue.rollup_failures.reason is 'The message, with what varies (numbers, ids, paths, quoted text) taken out.';
comment on column pgqueue.rollup_failures.failures is 'Attempts that failed so.';
comment on column pgqueue.rollup_failures.jobs is 'Jobs that did at least once.';
comment on column pgqueue.rollup_failures.dead is 'Jobs that died of it: it was their last failure.';
comment on column pgqueue.rollup_failures.sample is 'The beginning of one such message, without secrets and addresses of e-mail.';

create table pgqueue.rollup_tenants (
    day          date             not null,
    hour         timestamptz      not null,
    queue        text             not null,
    tenant       text,
    jobs         bigint           not null,
    run_seconds  double precision not null,
    wait_seconds double precision not null,
    wait_p90     double precision,
    cost         double precision,
    unique nulls not distinct (day, hour, queue, tenant)
);
comment on table pgqueue.rollup_tenants is 'Ended jobs per tenant, and what running them cost.';
comment on column pgqueue.rollup_tenants.day is 'The day on which the jobs ended.';
comment on column pgqueue.rollup_tenants.hour is 'The hour in which they ended.';
comment on column pgqueue.rollup_tenants.queue is 'Their queue.';
comment on column pgqueue.rollup_tenants.jobs is 'How many jobs ended.';
comment on column pgqueue.rollup_tenants.run_seconds is 'As in rollup_hours.';
comment on column pgqueue.rollup_tenants.wait_seconds is 'As in rollup_hours.';
comment on column pgqueue.rollup_tenants.wait_p90 is 'As in rollup_hours.';
comment on column pgqueue.rollup_tenants.tenant is 'From the arguments, as pipeline.toml says; null: they name none.';
comment on column pgqueue.rollup_tenants.cost is 'run_seconds at the price of pipeline.toml; null: it names none.';

create table pgqueue.rollup_workers (
    day           date             not null,
    hour          timestamptz      not null,
    worker_id     uuid             not null,
    host          text,
    concurrency   integer,
    alive_seconds double precision,
    busy_seconds  double precision not null,
    utilisation   double precision,
    primary key (day, hour, worker_id)
);
comment on table pgqueue.rollup_workers is 'How busy each worker was. Without a host: jobs name a worker that nothing is known of.';
comment on column pgqueue.rollup_workers.day is 'The day of the hour.';
comment on column pgqueue.rollup_workers.hour is 'An hour in which the worker was alive, or its jobs ran.';
comment on column pgqueue.rollup_workers.worker_id is 'The id of the worker.';
comment on column pgqueue.rollup_workers.host is 'As in workers.';
comment on column pgqueue.rollup_workers.concurrency is 'As in workers.';
comment on column pgqueue.rollup_workers.alive_seconds is 'For how long it was alive in that hour.';
comment on column pgqueue.rollup_workers.busy_seconds is 'The sum of its attempts'' durations in that hour.';
comment on column pgqueue.rollup_workers.utilisation is 'busy_seconds / (concurrency * alive_seconds).';

create view pgqueue.rollup_rates as
    select hour, queue, task,
           jobs / 3600::float8 as jobs_per_second,
           busy_seconds / 3600 as running_at_once,
           retries::float8 / nullif(jobs, 0) as retries_per_job,
           dead::float8 / nullif(jobs, 0) as dead_share,
           wait_p50, wait_p90, wait_p99, run_p50, run_p90, run_p99,
           slo_attained, slo_burn
    from pgqueue.rollup_hours;
comment on view pgqueue.rollup_rates is 'The hours as rates and shares: one line of a plot per column.';

create view pgqueue.rollup_fleet as
    select hour, count(*) filter (where alive_seconds > 0) as workers,
           sum(concurrency * alive_seconds) / 3600 as slots,
           sum(busy_seconds) / 3600 as running_at_once,
           sum(busy_seconds) / nullif(sum(concurrency * alive_seconds), 0) as utilisation
    from pgqueue.rollup_workers group by hour;
comment on view pgqueue.rollup_fleet is 'All workers together, by hour; slots: how many jobs could have run at once.';

create view pgqueue.rollup_budgets as
    select queue, task, min(day) as first_day, max(day) as last_day,
           sum(slo_good)::bigint as good, sum(slo_total)::bigint as total, max(slo_objective) as objective,
           sum(slo_good)::float8 / nullif(sum(slo_total), 0) as attained,
           1 - (sum(slo_total) - sum(slo_good))::float8
               / nullif(sum(slo_total * (1 - slo_objective)), 0) as budget_left
    from pgqueue.rollup_days
    where slo_objective is not null and day > (select max(day) - 28 from pgqueue.rollup_made)
    group by queue, task;
comment on view pgqueue.rollup_budgets is
    'Promises over the last 28 days; budget_left: the share of the allowed failures that is not used up, below 0 if broken.';
