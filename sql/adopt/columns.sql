-- adopt/columns: return the columns of a table on the search path; none if there is no such table.
-- index: none
-- locks: none
-- run by: pgqueue adopt
select attname::text from pg_attribute
where attrelid = to_regclass(%(source)s::text) and attnum > 0 and not attisdropped
