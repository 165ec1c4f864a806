"""How a caller learns that jobs have ended."""
