"""The schema's revisions: ``NNNN_what.up.sql`` and ``NNNN_what.down.sql``."""
