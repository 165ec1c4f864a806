-- As in revision 0006.

alter table pgqueue.nodes set (fillfactor = 70);
