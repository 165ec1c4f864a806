-- Takes the alerts away.

drop table pgqueue.alerts;
