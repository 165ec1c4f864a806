"""A DataFrame through workers and back: enqueue its rows, wait for the jobs, join the results to the rows."""
