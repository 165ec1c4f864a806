"""The rows of a run's results: their columns, and how what PostgreSQL sends becomes a batch of Spark's.

The key columns come first; they have the types that they had in the DataFrame, and are made from the JSON that each job keeps. Then
come the columns of :data:`COLUMNS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    DoubleType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pgqueue.errors import InvalidOption, PayloadNotDecodable, PipelineError
from pgqueue.spark.apps import find_app
from pgqueue.spark.reading.columns import Shape, parser
from pgqueue.values.hints import did_you_mean
from pgqueue.values.payloads.codec import ENVELOPE, Codec, JobPart, kept_text, node_result_text, opened_errors

ID, STATE, KEY, RESULT, MESSAGE = "job_id", "state", "key", "result", "error_message"
COLUMNS: Mapping[str, DataType] = {
    ID: LongType(),
    STATE: StringType(),
    RESULT: StringType(),
    "error_type": StringType(),
    MESSAGE: StringType(),
    "reason": StringType(),
    "attempts": ShortType(),
    "waited": DoubleType(),
    "ran": DoubleType(),
    "ended_at": TimestampType(),
}
"""The columns after the key columns."""
GONE = "gone"
"""The state of a job of which there is no record any more."""
_ENCODED = f'{{"{ENVELOPE}"'
"""How an envelope of a codec begins, as PostgreSQL and msgspec write it."""
TO_DECODE = ("task", "meta", "error_encoded")
"""What is read besides, where a codec has to decode."""


def result_schema(key: StructType, columns: Sequence[str] | None) -> StructType:
    """The schema of a run's results.

    Args:
        key: the key columns.
        columns: which columns, in this order; None: all.

    Raises:
        InvalidOption: there is no such column, or two have one name.
    """
    known = {field.name: field for field in key.fields}
    for name, kind in COLUMNS.items():
        if name in known:
            raise InvalidOption(
                f"the key column {name!r} has the name of a column of results; name it otherwise in the write"
            )
        known[name] = StructField(name, kind)
    for name in columns or ():
        if name not in known:
            hint = did_you_mean(name, known) or f"; they have {', '.join(known)}"
            raise InvalidOption(f"results have no column {name!r}{hint}")
    return StructType([known[name] for name in columns or known])


@dataclass(frozen=True)
class ResultShape(Shape):
    """The shape of a run's results.

    Attributes:
        key: the key columns of the run.
        app: the ``module:attribute`` of the queue whose codec decodes; None: nothing is decoded.
    """

    key: StructType
    app: str | None

    @property
    def wanted(self) -> list[str]:
        """The columns to read from PostgreSQL."""
        own = [name for name in self.schema.names if name in COLUMNS and name != ID]
        keyed = any(name in self.key.names for name in self.schema.names)
        # Where a read is planned, the app need not be found: of a stream, that process has no files of the application.
        decoded = TO_DECODE if self.app is not None else ()
        return [ID, *own, *([KEY] if keyed else []), *decoded]

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in Spark's types; arguments and errors as for :class:`Shape`."""
        if self._codec is not None:
            batch = _Decoder(self._codec, batch).decoded()
        else:
            self._require_plain(batch)
        keys = self._keys(batch) if KEY in batch.schema.names else {}
        columns = [
            keys[field.name] if field.name in keys else self._fitted(batch, field, batch.column(field.name))
            for field in self._target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def gone(self, ids: Sequence[int]) -> pa.RecordBatch:
        """Rows for jobs of which there is no record any more."""
        columns = [
            pa.array(ids, pa.int64())
            if field.name == ID
            else pa.array([GONE] * len(ids), pa.string())
            if field.name == STATE
            else pa.nulls(len(ids), field.type)
            for field in self._target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    @cached_property
    def _codec(self) -> Codec | None:
        return None if self.app is None else find_app(self.app).codec

    @cached_property
    def _key_parser(self) -> Callable[[str], Any]:
        return parser(KEY, self.key)

    def _keys(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        parsed: list[dict[str, Any]] = []
        for text in batch.column(KEY).to_pylist():
            try:
                parsed.append({} if text is None else self._key_parser(text))
            except msgspec.MsgspecError as error:
                raise self._bad_key(batch, len(parsed), str(error)) from None
        arrow = to_arrow_schema(self.key, timezone="UTC")
        return {
            name: pa.array([one.get(name) for one in parsed], arrow.field(name).type)
            for name in self.key.names
            if name in self.schema.names
        }

    def _require_plain(self, batch: pa.RecordBatch) -> None:
        """Refuse to parse what a codec has encoded: it would be read as an object without the wanted fields, as nulls."""
        for name in (KEY, *(one for one in (RESULT,) if one in self._parsers)):
            if name in batch.schema.names and pc.any(pc.starts_with(batch.column(name), _ENCODED)).as_py():
                raise PipelineError(
                    f"{'the key columns' if name == KEY else 'the results'} of this run are encoded: name the queue whose "
                    'codec decodes them, option("app", "shop.jobs:queue"); or leave them out, option("columns", "job_id, state")'
                )

    def _bad_key(self, batch: pa.RecordBatch, row: int, reason: str) -> PipelineError:
        return PipelineError(
            f"{self._row(batch, row)}: its key does not fit {self.key.simpleString()}: {reason}; read without the key columns"
        )

    def _row(self, batch: pa.RecordBatch, row: int) -> str:
        return f"{self.table}, job {batch.column(ID)[row].as_py()}"


def shape_of_results(run: str, schema: StructType, key: StructType, app: str | None) -> ResultShape:
    """The shape of results, checked.

    Args:
        run: the run's name.
        schema: Spark's: the user's, or one of :func:`result_schema`.
        key: the key columns of the run.
        app: as for :class:`ResultShape`.

    Raises:
        InvalidOption: the schema does not fit.
    """
    if not schema.fields:
        raise InvalidOption("no column is asked for")
    known = result_schema(key, schema.names)
    for field in schema.fields:
        of_run = known[field.name].dataType
        if field.dataType == of_run:
            continue
        if field.name != RESULT:
            raise InvalidOption(
                f"column {field.name!r} of results cannot be {field.dataType.simpleString()}: it is {of_run.simpleString()}"
            )
        parser(RESULT, field.dataType)
    return ResultShape(f"results of run {run!r}", schema, key, app)


class _Decoder:
    """Decodes what a codec encoded of a batch."""

    def __init__(self, codec: Codec, batch: pa.RecordBatch) -> None:
        self._codec = codec
        self._batch = batch
        self._tasks, self._metas = (batch.column(name).to_pylist() for name in TO_DECODE[:2])

    def decoded(self) -> pa.RecordBatch:
        """The batch, with its keys, results and messages decoded; a result that cannot be decoded stays as it is stored."""
        batch = self._batch
        for name, decode in ((KEY, self._key), (RESULT, self._result), (MESSAGE, self._message)):
            if name in batch.schema.names:
                values = [
                    None if text is None else decode(place, text)
                    for place, text in enumerate(batch.column(name).to_pylist())
                ]
                batch = batch.set_column(
                    batch.schema.get_field_index(name), name, pa.array(values, pa.string())
                )
        return batch

    def _key(self, place: int, text: str) -> str | None:
        try:
            return kept_text(self._codec, self._tasks[place], text)
        except PayloadNotDecodable as error:
            raise PipelineError(
                f"job {self._batch.column(ID)[place].as_py()}: its key cannot be decoded: {error}"
            ) from None

    def _result(self, place: int, text: str) -> str:
        try:
            return node_result_text(self._codec, self._tasks[place], text, self._metas[place])
        except PayloadNotDecodable:
            return text

    def _message(self, place: int, text: str) -> str | None:
        encoded = self._batch.column("error_encoded")[place].as_py()
        if encoded is None:
            return text
        part = JobPart("error", self._tasks[place], self._metas[place])
        opened: Any = opened_errors(self._codec, [{"encoded": encoded}], part)
        return str(opened[0]["message"])
