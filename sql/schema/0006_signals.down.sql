-- Drops signals.

drop table pgqueue.signals;
