"""The statements about alerts."""
