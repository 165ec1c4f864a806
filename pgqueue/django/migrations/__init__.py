"""The schema's revisions, as Django migrations."""
