"""The statements that make history up, and roll it up in plain SQL to compare."""
