"""Plans of the pipeline on Spark."""
