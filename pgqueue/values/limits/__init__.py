"""Limits, rates and shares: what they say, and which jobs may start by them."""
