-- Priority that waiting jobs of a queue gain. A queue that says nothing has no ageing.

alter table pgqueue.queues
    add column ageing    interval check (ageing between '1 second' and '366 days'),
    add column ageing_to smallint check (ageing_to between 1 and 100);
comment on column pgqueue.queues.ageing is
    'A job that has waited this long once, twice, … has at least priority 1, 2, …; null: priorities stay.';
comment on column pgqueue.queues.ageing_to is 'The highest priority that ageing gives; null: 100.';
