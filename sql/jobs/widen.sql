-- jobs/widen: a long answer, after which the client reads this many bytes at once.
-- index: none
-- locks: none
-- run by: worker start
-- why: libpq reads at most what its buffer holds. The buffer begins with 16 kB, grows to the longest message and stays so
select pg_catalog.repeat(' ', %(bytes)s::integer)
