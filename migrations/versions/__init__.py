"""Revisions. Each runs the files of ``sql/schema`` whose names begin with its number, in the order of their names.

A release's ``pre`` revisions may run while the previous release still works. Its ``post`` revisions take away what only the previous
release needed; they run when no worker of that release is left.
"""
