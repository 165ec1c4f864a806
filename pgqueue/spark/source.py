"""What ``format("pgqueue")`` is: who reads, who streams, who writes."""

from pyspark.sql.datasource import DataSource


class PgQueueSource(DataSource):
    """pgqueue's tables as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "pgqueue"
