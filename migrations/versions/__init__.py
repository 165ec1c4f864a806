"""Revisions, each a few lines that run a pair of files in ``sql/schema``.

A release's ``pre`` revisions may run while the previous release still works; its ``post`` revisions, which
take away what only the previous release needed, run when no worker of that release is left.
"""
