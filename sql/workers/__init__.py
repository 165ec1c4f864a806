"""The statements by which people look at workers and ask them to do something."""
