-- Which releases may work on this schema. Workers go on during an upgrade: a later revision raises it only where older code would break.

create table pgqueue.compatibility (
    oldest_code text not null
);
comment on table pgqueue.compatibility is 'The lowest schema revision that code may be built for to work on this schema.';
comment on column pgqueue.compatibility.oldest_code is 'The lowest revision. Code written for an earlier one does not work on this schema.';
insert into pgqueue.compatibility values ('0001');
