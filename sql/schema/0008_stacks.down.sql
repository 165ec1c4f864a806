-- Takes away the questions for stacks and their answers.
drop table pgqueue.stacks;
