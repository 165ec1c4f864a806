"""The data source behind ``format("pgqueue")``: chooses the reader, the stream reader and the writers."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pgqueue.errors import ConfigurationError, SparkMissing
from pgqueue.spark.options import Options
from pgqueue.spark.reading.options import (
    BATCH,
    STREAM,
    batch_options,
    source_of,
    stream_options,
)
from pgqueue.store.connections.dsn import dsn_in_environment, replica_in_environment

RESULTS = "results"
"""The option that names a run, in place of a table."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class PgQueueSource(DataSource):
    """pgqueue's tables as a Spark data source.

    Attributes:
        default_dsn: where the database is, if no option names it; None: the environment of the process in which Spark
            plans. That process starts with the session and does not see variables that are set later, so
            :func:`here` makes a source that keeps the DSN.
        default_replica: where reads go, if no option names a database; None: to ``default_dsn``.
    """

    default_dsn: str | None = None
    default_replica: str | None = None

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "pgqueue"

    def schema(self) -> StructType:
        """The table's columns and their types.

        Raises:
            ConfigurationError: an option is missing, unknown or out of its range.
        """
        from pgqueue.spark.reading.columns import schema_of  # noqa: PLC0415 - writers need none of it

        options = self._options()
        if options.get(RESULTS) is not None:
            from pgqueue.spark.reading.result_stream import OPTIONS  # noqa: PLC0415 - writers need none of it
            from pgqueue.spark.reading.results import (  # noqa: PLC0415 - writers need none of it
                result_options,
                schema_of_results,
            )

            return schema_of_results(result_options(options, OPTIONS))
        options.check_known((*BATCH, *STREAM))
        source = source_of(options)
        return schema_of(source.name, source.columns)

    def reader(self, schema: StructType) -> "DataSourceReader":
        """The reader for ``spark.read``."""
        options = self._options()
        if options.get(RESULTS) is not None:
            from pgqueue.spark.reading.results import (  # noqa: PLC0415 - writers need none of it
                ResultReader,
                result_options,
            )

            return ResultReader(result_options(options), schema)
        from pgqueue.spark.reading.reader import TableReader  # noqa: PLC0415 - writers need none of it

        return TableReader(batch_options(options), schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802 - Spark's name
        """The reader for ``spark.readStream``."""
        try:
            from pgqueue.spark.reading.result_stream import result_stream  # noqa: PLC0415 - needs PySpark 4.2
            from pgqueue.spark.reading.stream import StreamReader  # noqa: PLC0415 - needs PySpark 4.2
        except ImportError as error:
            raise SparkMissing(f"streams need PySpark 4.2 or later ({error}): upgrade it") from error

        options = self._options()
        if options.get(RESULTS) is not None:
            return result_stream(options, schema)
        return StreamReader(stream_options(options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":  # noqa: FBT001 - Spark's signature
        """The writer that enqueues the rows of a DataFrame."""
        from pgqueue.spark.writing.writer import writer  # noqa: PLC0415 - readers need none of it

        return writer(self._for_writing(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: FBT001, N802 - Spark's signature
        """The writer that enqueues the rows of a stream."""
        from pgqueue.spark.writing.writer import stream_writer  # noqa: PLC0415 - readers need none of it

        return stream_writer(self._for_writing(), schema, overwrite)

    def _for_writing(self) -> MutableMapping[str, str]:
        # With an app, the app gives the database; unless it takes it from an environment that this process does not have.
        app = self.options.get("app")
        return self._with_dsn() if app is None or not _names_database(app) else self.options

    def _with_dsn(self) -> MutableMapping[str, str]:
        if self.default_dsn and "dsn" not in self.options:
            self.options["dsn"] = self.default_dsn
        return self.options

    def _options(self) -> Options:
        # A replica that the environment names is asked rather than the primary.
        if self.default_replica and "dsn" not in self.options:
            self.options["dsn"] = self.default_replica
        return Options(self._with_dsn())


def _names_database(app: str) -> bool:
    from pgqueue.spark.apps import find_app  # noqa: PLC0415 - readers need none of it

    try:
        return bool(find_app(app).database.dsn)
    except ConfigurationError:
        return False  # whatever is wrong with the app is told by the writer


def here() -> type[PgQueueSource]:
    """The source, with the DSN of this process's environment as the default of reads and writes; of reads the replica, if it names one."""
    return type(
        "PgQueueSource",
        (PgQueueSource,),
        {
            "default_dsn": dsn_in_environment(),
            "default_replica": replica_in_environment(),
            "__doc__": PgQueueSource.__doc__,
        },
    )
