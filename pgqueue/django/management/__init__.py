"""Django looks for commands in here."""
