"""The statements that make up history, and roll it up in plain SQL for comparison."""
