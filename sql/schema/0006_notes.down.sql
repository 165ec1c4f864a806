-- Drops what jobs noted.

drop table pgqueue.notes;
