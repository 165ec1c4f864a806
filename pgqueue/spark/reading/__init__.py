"""Reads pgqueue's tables into Spark, once or as a stream."""
