"""Arguments and results of a task as columns, by the contract that its workers publish."""
