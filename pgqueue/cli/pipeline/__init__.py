"""``pgqueue pipeline``: the history on Spark."""
