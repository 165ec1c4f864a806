"""The statements that move the waiting jobs of another queue package to pgqueue."""
