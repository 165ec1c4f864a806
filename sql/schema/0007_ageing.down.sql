-- Takes away the ageing of queues. Jobs keep the priorities that they have gained.

alter table pgqueue.queues drop column ageing, drop column ageing_to;
