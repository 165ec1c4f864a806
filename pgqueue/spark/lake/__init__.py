"""The lake of Parquet files: what is in it, how it gets there, and what may then leave the database."""
