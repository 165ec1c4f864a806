"""The schema: ``NNNN_MM_subject.up.sql``, one file per subject, and ``NNNN_MM_subject.down.sql``, by the number of the revision."""
