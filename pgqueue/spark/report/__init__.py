"""The report: questions asked of the roll-ups, answered on one page and in tables.

A question is a module that asks Spark and chooses the words; the statistics of it are a ``rule_`` module beside it,
which knows neither Spark nor the page.
"""
