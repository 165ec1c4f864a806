"""Makes jobs of rows: checks each row as an enqueue does, and records refused rows by row and column."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from pgqueue.errors import PayloadError, PayloadNotEncodable, PayloadTooLarge, PgQueueError
from pgqueue.spark.apps import find_app
from pgqueue.spark.writing.columns import RESERVED, Reader, reader_of
from pgqueue.spark.writing.keys import key_encoder, meta_of
from pgqueue.spark.writing.target import WriteTarget
from pgqueue.store.pipeline.sink_stage import StagedJob
from pgqueue.values.jobs.options import check_instant, check_key
from pgqueue.values.limits.task_limits import encoded_lane
from pgqueue.values.payloads.codec import Codec, encoded_args, encoded_key
from pgqueue.values.payloads.signature import DEFAULT_LIMIT, encode_result
from pgqueue.values.redaction import Redaction

Encode: TypeAlias = Callable[[dict[str, Any]], bytes]
Options: TypeAlias = tuple[str, int | None, int | None]
SHOWN = 5
"""How many refused rows are described; all are counted."""
SHORT = 120
LONGEST_REASON = 400


class RefusedRow(msgspec.Struct, frozen=True):
    """Why a row cannot be a job.

    Attributes:
        partition: the row's partition.
        place: which row of the partition, from 1.
        contents: its unique key, or its first columns, so that a user finds the row.
        reason: column and value, and what is allowed.
    """

    partition: int
    place: int
    contents: str
    reason: str

    def __str__(self) -> str:
        contents = f" ({self.contents})" if self.contents else ""
        return f"row {self.place} of partition {self.partition}{contents}: {self.reason}"


class UnreadableValue(msgspec.Struct, frozen=True):
    """Stands in place of a value that a job cannot have."""

    reason: str


class Rows:
    """The rows of one partition, in their order.

    Attributes:
        rows: the number of rows so far.
        staged: how many of them were staged: as jobs to be, or as rows that cannot be jobs.
        keyed: how many staged jobs have a unique key.
        refused: how many rows cannot be jobs.
        refusals: the first refused rows, at most SHOWN.
    """

    def __init__(self, target: WriteTarget, partition: int) -> None:
        self.rows = self.staged = self.keyed = self.refused = 0
        self.refusals: list[RefusedRow] = []
        self._partition = partition
        self._args = target.args
        self._codec = None if target.app is None else find_app(target.app).codec
        self._task = target.task
        self._limiting = None if target.app is None else find_app(target.app).find_task(target.task).limiting
        self._encode = _encoder(target)
        self._options = _options(target)
        self._said = [name for name in RESERVED if name in target.columns.names]
        self._arguments = target.arguments
        self._key = target.key.names
        self._key_of = key_encoder(self._codec, target.task)
        self._diverts = target.diverts
        # What a codec would encode is not kept in clear in the place of a job that was refused.
        every = Redaction([""]) if self._codec is not None else None
        self._redaction = every or (Redaction() if target.app is None else find_app(target.app).redaction)
        self._readers = {field.name: reader_of(field.dataType) for field in target.columns.fields}

    def jobs(self, batch: pa.RecordBatch) -> Iterator[StagedJob]:
        """The jobs to stage for the rows of a batch; rows that cannot be jobs are recorded, and left out or diverted."""
        columns = {name: _read(batch.column(name), reader) for name, reader in self._readers.items()}
        unreadable = any(UnreadableValue in map(type, values) for values in columns.values())
        said, given, keys = (
            _records(names, columns, batch.num_rows) for names in (self._said, self._arguments, self._key)
        )
        for options, arguments, key in zip(said, given, keys, strict=True):
            self.rows += 1
            try:
                if unreadable:
                    _require_readable(options | arguments | key)
                job = self._job(options, arguments, key)
            except PgQueueError as error:
                refused = self._refuse(error, options | arguments | key)
                if self._diverts:
                    self.staged += 1
                    yield self._diverted(refused, key)
            else:
                self.staged += 1
                self.keyed += job.unique_key is not None
                yield job

    def _job(
        self, options: Mapping[str, Any], arguments: dict[str, Any], key_values: Mapping[str, Any]
    ) -> StagedJob:
        queue, priority, max_attempts = self._options(
            options.get("queue"), options.get("priority"), options.get("max_attempts")
        )
        key = options.get("unique_key")
        check_key(key)
        check_instant("run_at", options.get("run_at"))
        meta = meta_of(self._key_of(key_values)) if self._key else None
        data = self._encode(arguments if self._args is None else _whole(arguments[self._args]))
        key, run_at = encoded_key(self._codec, key), options.get("run_at")
        if self._codec is None:
            return StagedJob(self.rows, queue, priority, max_attempts, data, run_at, key, meta)
        lane, cost = self._place(self._codec, data)
        data = encoded_args(self._codec, self._task, data, meta)
        return StagedJob(self.rows, queue, priority, max_attempts, data, run_at, key, meta, lane, cost)

    def _place(self, codec: Codec, data: bytes) -> tuple[str | None, int | None]:
        """Where a job stands whose arguments the database cannot read."""
        if self._limiting is None:
            return None, None
        try:
            return encoded_lane(self._limiting.lane(data), codec.key), self._limiting.cost_of(data)
        except ValueError as error:
            raise PayloadNotEncodable(f"{self._task}: {error}") from error

    def _refuse(self, error: PgQueueError, values: Mapping[str, Any]) -> RefusedRow:
        self.refused += 1
        secrets = self._redaction.secrets_in(values)
        reason = self._redaction.text(self._reason(error, values), secrets) or ""
        contents = _known_by(self._redaction.value(values))
        refused = RefusedRow(self._partition, self.rows, contents, _short(reason, LONGEST_REASON))
        if len(self.refusals) < SHOWN:
            self.refusals.append(refused)
        return refused

    def _diverted(self, refused: RefusedRow, key_values: Mapping[str, Any]) -> StagedJob:
        said = {"reason": refused.reason.replace("\0", ""), "contents": refused.contents.replace("\0", "")}
        refusal = msgspec.json.encode(said)
        if self._key:
            with suppress(PgQueueError):  # what cannot be read, or takes too long a text, is left out
                _require_readable(key_values)
                refusal = b'%b,"key":%b}' % (refusal[:-1], self._key_of(key_values))
        return StagedJob(self.rows, "", None, None, b"{}", refusal=refusal)

    def _reason(self, error: PgQueueError, values: Mapping[str, Any]) -> str:
        for name, value in values.items():
            if _holds_nul(value):
                return f"column {name!r}: a string holds NUL (\\x00), which PostgreSQL cannot store"
        if self._args is not None and isinstance(error, PayloadError):
            return f"column {self._args!r}: {error}"
        return str(error)


def _read(column: pa.Array, reader: Reader | None) -> list[Any]:
    try:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            return _instants(column)
        values: list[Any] = column.to_pylist()
        return values if reader is None else [None if value is None else reader(value) for value in values]
    except (AttributeError, OverflowError, ValueError):
        # One by one, to find the value that cannot be read.
        return [_read_one(value, reader) for value in column]


def _instants(column: pa.Array) -> list[datetime | None]:
    """Instants in UTC. NumPy takes a tenth of the 3 µs each; an instant outside Python's years comes as a number."""
    values: list[datetime | None] = column.to_numpy(zero_copy_only=False).astype(object).tolist()
    return [None if value is None else value.replace(tzinfo=UTC) for value in values]


def _read_one(scalar: pa.Scalar, reader: Reader | None) -> Any:  # noqa: ANN401 - of the column's type
    try:
        value = scalar.as_py()
        return value if value is None or reader is None else reader(value)
    except (ValueError, OverflowError) as error:
        return UnreadableValue(str(error))


def _require_readable(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if type(value) is UnreadableValue:
            raise PayloadNotEncodable(f"column {name!r}: {value.reason}")


def _records(names: Sequence[str], columns: Mapping[str, list[Any]], count: int) -> Iterator[dict[str, Any]]:
    """Yield the values of some columns, row by row; without columns, an empty dict for each row."""
    if not names:
        return ({} for _ in range(count))
    return (dict(zip(names, row, strict=True)) for row in zip(*map(columns.__getitem__, names), strict=True))


def _options(target: WriteTarget) -> Callable[[str | None, int | None, int | None], Options]:
    """Return a function that checks a row's queue, priority and attempts, with the task's where the row names none.

    Equal values are checked once.
    """
    app = None if target.app is None else find_app(target.app)

    @cache
    def complete(queue: str | None, priority: int | None, max_attempts: int | None) -> Options:
        found = target.defaults.but(queue=queue, priority=priority, max_attempts=max_attempts)
        if app is not None:
            app.require_queue(found.queue)
        return found.queue, found.priority, found.max_attempts

    return complete


def _encoder(target: WriteTarget) -> Encode:
    """Return what makes JSON of arguments: as the task encodes them where it is known, else as plain values."""
    if target.app is None:
        return _encode
    app = find_app(target.app)
    signature, limit = app.find_task(target.task).signature, app.max_payload
    return lambda arguments: signature.encode((), arguments, limit=limit)


def _encode(arguments: dict[str, Any]) -> bytes:
    data = encode_result(arguments) or b"{}"
    if len(data) > DEFAULT_LIMIT:
        raise PayloadTooLarge(
            f"the arguments take {len(data):,} bytes as JSON, over the limit of {DEFAULT_LIMIT:,}; "
            "store them elsewhere and enqueue a reference"
        )
    return data


def _whole(value: object) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PayloadNotEncodable(f"{_short(repr(value), SHORT)} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise PayloadNotEncodable(
            f"{_short(repr(value), SHORT)} is not a JSON object, a key for each argument"
        )
    return found


def _known_by(values: Mapping[str, Any]) -> str:
    key = values.get("unique_key")
    shown = values if key is None or type(key) is UnreadableValue else {"unique_key": key}
    said = ", ".join(
        f"{name}={_short(repr(value), SHORT)}"
        for name, value in shown.items()
        if type(value) is not UnreadableValue
    )
    return _short(said, SHORT)


def _holds_nul(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_holds_nul(one) for pair in value.items() for one in pair)
        case list():
            return any(map(_holds_nul, value))
    return False


def _short(text: str, longest: int) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"
