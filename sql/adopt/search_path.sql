-- adopt/search_path: find another queue's tables, and what their triggers name, in this schema first, until the transaction ends.
-- index: none
-- locks: none
-- run by: pgqueue adopt --from-schema
select set_config('search_path', quote_ident(%(from_schema)s::text) || ', ' || current_setting('search_path'), true)
