"""Plans that make history up, and that roll it up in plain SQL to compare."""
