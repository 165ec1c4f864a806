"""The statements about signals, and about jobs that wait for one."""
