-- Drops schedules and their ticks. Jobs that they enqueued stay.

drop function pgqueue.schedule(text, text, jsonb, text, interval, timestamptz, text, text, integer, integer, timestamptz,
                               timestamptz, text, text);
drop function pgqueue.fire_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz);
drop function pgqueue.note_ticks(text[], timestamptz[], timestamptz[], text[], text[], timestamptz);
drop table pgqueue.schedule_ticks;
drop table pgqueue.schedules;
drop function pgqueue.schedule_changed();
