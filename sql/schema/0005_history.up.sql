-- How long the arguments may be that the history keeps of a succeeded job.

alter table pgqueue.retention add column history_args integer;
comment on column pgqueue.retention.history_args is
    'Bytes, as stored: longer arguments of a succeeded job are not copied to the history. Null: no value is stored; 8,000.';

-- Stores the values that are given, and returns what holds now and what held before. Workers of revision 0004 call the
-- function of the same name without the arguments' length.
create function pgqueue.keep_for(
    history interval, dead interval, history_args integer, said_by text,
    out history_now interval, out dead_now interval, out history_args_now integer,
    out history_before interval, out dead_before interval, out history_args_before integer
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select kept.history, kept.dead, kept.history_args into history_before, dead_before, history_args_before
    from pgqueue.retention as kept;
    history_now := coalesce(keep_for.history, history_before);
    dead_now := coalesce(keep_for.dead, dead_before);
    history_args_now := coalesce(keep_for.history_args, history_args_before);
    if (history_now, dead_now, history_args_now) is distinct from (history_before, dead_before, history_args_before) then
        insert into pgqueue.retention as kept (history, dead, history_args, set_at, set_by)
        values (history_now, dead_now, history_args_now, now(), said_by)
        on conflict (only_row) do update
        set history = excluded.history, dead = excluded.dead, history_args = excluded.history_args,
            set_at = excluded.set_at, set_by = excluded.set_by;
    end if;
end $$;

-- The longest arguments, in bytes as stored, that the history keeps of a succeeded job. With the owner's rights: a take may
-- run for a role that cannot read the table.
create function pgqueue.history_args() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce((select history_args from pgqueue.retention), 8000)
$$;
