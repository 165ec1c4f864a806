"""Measures the pipeline, beside plain SQL and DuckDB."""
