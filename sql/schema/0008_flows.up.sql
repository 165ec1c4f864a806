-- Nodes are updated in place: half of each page is kept free for what the ends of their jobs write.

-- With less, the members of a group that end in one transaction find no room on their pages; each then takes a new place,
-- and a new entry in three indexes, which costs the server three times as much. Pages that are full already stay so.
alter table pgqueue.nodes set (fillfactor = 50);
