"""Job history on Spark: a data source, a sink, a lake, roll-ups and a report.

``session()`` is a Spark session that knows ``format("pgqueue")``; in a session of one's own
``spark.dataSource.register(PgQueueSource)`` does it.
"""
