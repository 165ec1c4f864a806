-- adopt/search_path: look first in this schema for another queue package's tables and what their triggers name, until the transaction ends.
-- index: none
-- locks: none
-- run by: pgqueue adopt --from-schema
select set_config('search_path', quote_ident(%(from_schema)s::text) || ', ' || current_setting('search_path'), true)
