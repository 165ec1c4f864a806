-- schedules/guard: have a shard refuse a job whose key lives elsewhere when its tick fires, and not at the commit.
-- index: none
-- locks: none
-- run by: worker upkeep, drain
-- why: at the commit an error is one of all ticks of the look, and no schedule fires; now it is that of its schedule
do $$ begin
    if to_regclass('pgqueue.shard') is not null then
        set constraints pgqueue.jobs_guard_added, pgqueue.jobs_guard_changed immediate;
    end if;
end $$
