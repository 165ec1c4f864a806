"""Job history on Spark: a data source, a sink, a lake, roll-ups and a report.

``session()`` is a Spark session that knows ``format("pgqueue")``; in any other session
``spark.dataSource.register(PgQueueSource)`` does it.
"""
