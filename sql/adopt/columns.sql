-- adopt/columns: tell which columns a table on the search path has; none if there is no such table.
-- index: none
-- locks: none
-- run by: pgqueue adopt
select attname::text from pg_attribute
where attrelid = to_regclass(%(source)s::text) and attnum > 0 and not attisdropped
