-- What the data pipeline notes: when the code changed, and which days of the history are safely in a lake.

create table pgqueue.deploys (
    deployed_at timestamptz primary key default now(),
    version     text        not null
);
comment on table pgqueue.deploys is 'When which version of your code went live, as `pgqueue pipeline deployed` was told.';

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
comment on column pgqueue.lake_days.checksum is 'Of the rows in the history; dead jobs may be retried or purged later.';
comment on column pgqueue.lake_days.below is 'The rows of transactions below this number are in the lake.';
comment on column pgqueue.lake_days.pruned_below is 'The rows of transactions below this number have been dropped from the history; 0: none have.';
