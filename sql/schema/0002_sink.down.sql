-- Takes away what a DataFrame's jobs waited in, and the list of writes.

drop table pgqueue.sink_rejected, pgqueue.sink_writes, pgqueue.sink_rows, pgqueue.sink_attempts;
