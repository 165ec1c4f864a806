-- Takes the depths of queues over time away.

drop table pgqueue.series_depths, pgqueue.series_depth_hours;
