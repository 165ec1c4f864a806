"""The statements of the pipeline: reading tables, the sink, the lake, the roll-ups."""
