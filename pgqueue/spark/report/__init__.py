"""The report: questions about the roll-ups, answered on one page and in tables.

Each question is a module that queries Spark and writes the sentences. Its statistics are in a ``rule_`` module, which
uses neither Spark nor the page.
"""
