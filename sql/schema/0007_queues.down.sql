-- Takes away the settings of queues. Paused queues stay paused.

alter table pgqueue.queues
    drop column paused_by, drop column paused_why, drop column drained_at, drop column drained_by, drop column drained_why,
    drop column priority, drop column max_attempts, drop column timeout, drop column keep_history, drop column keep_dead,
    drop column set_at, drop column set_by;
