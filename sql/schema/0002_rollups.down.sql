-- Takes the roll-ups away; `pgqueue pipeline rollup` makes them again from the lake.
drop view pgqueue.rollup_budgets, pgqueue.rollup_fleet, pgqueue.rollup_rates;
drop table pgqueue.rollup_workers, pgqueue.rollup_tenants, pgqueue.rollup_failures, pgqueue.rollup_days,
           pgqueue.rollup_hours, pgqueue.rollup_made;
