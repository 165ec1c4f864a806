"""A task's signature, and its arguments as one JSON object, by parameter name.

The function's annotations are the schema. Arguments are encoded and then decoded again *when they are enqueued*, so
arguments that a worker could not read are refused at the enqueue.
"""

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect as inspect_types

from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable, PayloadTooLarge
from pgqueue.values.hints import option_hint
from pgqueue.values.payloads.argument_check import (
    is_filled_in,
    refuse_injected,
    refuse_models,
    warn_of_change,
    watch_over,
)
from pgqueue.values.payloads.arrival import changes, require_whole
from pgqueue.values.payloads.codec import ENVELOPE
from pgqueue.values.payloads.other_types import Unreadable, read_other, types_within, write_other
from pgqueue.values.payloads.schema import schema_of
from pgqueue.values.payloads.storable import (
    NUL,
    NULL,
    SURELY_STORABLE,
    has_line_ends,
    refuse_non_finite,
    refuse_unstorable,
    storable_json,
)

DEFAULT_LIMIT = 1 << 20
HIGHEST_LIMIT = 8 << 20
"""Bytes. The tables take twice as many, since what a codec encodes is longer: the domain ``arguments``."""
_OPEN = {inspect_types.AnyType, inspect_types.CustomType}
"""Types whose values may have ``msgspec.Raw`` in them."""
_OF_A_TYPE = (Exception, CancelledError, SystemExit)
"""What a type's own validator or conversion may raise in a worker. The last two would end its runner."""
_FIELDS_MISFIT = ("Object contains unknown field ", "Object missing required field ")
"""How msgspec begins to say that an object has other keys than its type."""
_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """The parameters of a task's function, read once.

    Attributes:
        warns: whether an enqueue warns of arguments that would arrive as other values, and of times without a zone.
    """

    def __init__(self, function: Callable[..., Any], injected: type, *, task: str | None = None) -> None:
        """A parameter of the type ``injected``, or of it and None, is filled in by the worker, and is no payload.

        Raises:
            ConfigurationError: an annotation cannot be resolved, is of a type msgspec cannot read, is a model, or has the
                injected type in it in another way.
        """
        self._name = task if task is not None else str(getattr(function, "__qualname__", repr(function)))
        self._injected = injected
        self._parameters = [
            p.replace(annotation=injected) if is_filled_in(p.annotation, injected) else p
            for p in _parameters(function)
        ]
        self._payload = payload = [p for p in self._parameters if p.annotation is not injected]
        annotations = {parameter.name: parameter.annotation for parameter in payload}
        refuse_models(self._name, annotations)
        refuse_injected(self._name, annotations, injected)
        try:
            self._struct = _payload_struct(self._name, payload)
            self._decoder = msgspec.json.Decoder(self._struct, dec_hook=read_other)
        except TypeError as error:
            raise ConfigurationError(
                f"task {self._name}: {error}; annotate it as a type that JSON can carry"
            ) from error
        self._encoder = msgspec.json.Encoder(enc_hook=write_other)
        kinds = {type(one) for one in types_within(inspect_types.type_info(self._struct))}
        self._holds_raw = inspect_types.RawType in kinds
        self._is_open = bool(kinds & _OPEN)
        # The struct binds as a plain call does; inspect binds the cases that it cannot tell apart.
        binds_itself = all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in payload)
        self._signature = None if binds_itself else inspect.Signature(payload)
        self.warns = True
        self._check = watch_over(self._name, self._struct, payload, write_other)
        self._is_plain = all(p.kind in _POSITIONAL for p in self._parameters)
        self._injected_at = [i for i, p in enumerate(self._parameters) if p.annotation is injected]

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of the object that has the arguments by name; None: there is none.

        An argument of whose type or default there is no schema may have any value in it.
        """
        whole = schema_of(self._struct)
        if whole is not None:
            return whole
        known = [
            p if schema_of(_payload_struct(p.name, [p])) is not None else _of_any_type(p)
            for p in self._payload
        ]
        return schema_of(_payload_struct(self._name, known))

    @property
    def takes_context(self) -> bool:
        """Whether the worker fills in a parameter."""
        return bool(self._injected_at)

    def encode(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        limit: int = DEFAULT_LIMIT,
        exact: Collection[str] | None = None,
    ) -> bytes:
        """The arguments of a call as JSON.

        Args:
            args: positional arguments, without the injected one.
            kwargs: keyword arguments.
            limit: the most bytes the JSON may have.
            exact: parameters to leave out whenever they equal their default, even as another object.

        Returns:
            One JSON object, a key per parameter; parameters left at their default are left out.

        Raises:
            PayloadNotEncodable: the arguments do not fit the signature, or have no JSON form that reads
                back as the annotated types.
            PayloadTooLarge: the JSON is longer than ``limit``.
        """
        try:
            payload = self._struct(*args, **kwargs) if self._signature is None else self._bind(args, kwargs)
        except TypeError as error:
            raise self._misfit(kwargs, error) from error
        try:
            if exact is not None:
                payload = _at_defaults(payload, exact)
            data = self._encoder.encode(payload)
            if self._holds_raw or (self._is_open and has_line_ends(data)):
                data = storable_json(data)
            if len(data) > SURELY_STORABLE or data.find(NUL) >= 0:  # short JSON pays for no call
                refuse_unstorable(data)
            arrived = self._decoder.decode(data)
            if data.find(NULL) >= 0:
                refuse_non_finite(msgspec.to_builtins(payload, enc_hook=write_other))
        except Exception as error:  # a type's own __post_init__ or validator may raise any error
            raise PayloadNotEncodable(
                f"{self._name}: {_at_argument(payload, error)}{_plain(error)}{_written(error)}"
            ) from error
        if len(data) > limit:
            raise PayloadTooLarge(
                f"{self._name}: the arguments take {len(data):,} bytes as JSON, over the limit of {limit:,}; "
                "store them elsewhere and enqueue a reference, or raise PgQueue(max_payload=...)"
            )
        if self._check is not None:
            self._check.look(payload, arrived, data, warns=self.warns)
        return data

    def decode(self, data: str | bytes, injected: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with which to call the function.

        Args:
            data: the stored JSON.
            injected: the value for the parameter annotated with the injected type, if there is one.

        Returns:
            Positional and keyword arguments.

        Raises:
            PayloadNotDecodable: the JSON does not fit the annotations; the message says where.
        """
        try:
            payload = self._decoder.decode(data)
        except _OF_A_TYPE as error:
            encoded = isinstance(data, str) and ENVELOPE in data
            hint = (
                "; they are encoded: give this program's PgQueue their codec"
                if encoded
                else self._takes(error)
            )
            raise PayloadNotDecodable(f"{self._name}: {_plain(error)}{hint}") from error
        if self._is_plain:
            values = msgspec.structs.astuple(payload)
            for position in self._injected_at:
                values = (*values[:position], injected, *values[position:])
            return values, {}
        return self._spread(payload, injected)

    def given(self, data: str | bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, without the injected one, that is stored as this JSON.

        Raises:
            PayloadNotDecodable: as for :meth:`decode`.
        """
        absent = object()
        args, kwargs = self.decode(data, absent)
        return tuple(one for one in args if one is not absent), {
            name: one for name, one in kwargs.items() if one is not absent
        }

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> msgspec.Struct:
        assert self._signature is not None  # noqa: S101 - for the type checker
        return self._struct(**self._signature.bind(*args, **kwargs).arguments)

    def _misfit(self, kwargs: Mapping[str, Any], error: TypeError) -> PayloadNotEncodable:
        known = {parameter.name for parameter in self._payload}
        hints = [hint for name in kwargs if name not in known and (hint := option_hint(name))]
        more = f"; options go to .using(...): {hints[0]}" if hints else ""
        return PayloadNotEncodable(f"{self._name}: {error}; it takes ({self._shown}){more}")

    def _takes(self, error: BaseException) -> str:
        """Return the signature, where the keys of stored arguments are not the names of the parameters; else empty."""
        said = str(error)
        is_inside = " - at `" in said
        return f"; it takes ({self._shown})" if said.startswith(_FIELDS_MISFIT) and not is_inside else ""

    @property
    def _shown(self) -> str:
        return ", ".join(map(str, self._payload))

    def _spread(self, payload: msgspec.Struct, injected: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._parameters:
            value: Any = injected
            if parameter.annotation is not self._injected:
                value = getattr(payload, parameter.name)
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    args.extend(value)
                case inspect.Parameter.VAR_KEYWORD:
                    kwargs.update(value)
                case inspect.Parameter.KEYWORD_ONLY:
                    kwargs[parameter.name] = value
                case _:
                    args.append(value)
        return tuple(args), kwargs


def encode_result(value: object) -> bytes | None:
    """A task's return value as JSON; None for None.

    Raises:
        PayloadNotEncodable: the value has no JSON form that PostgreSQL can store.
    """
    if value is None:
        return None
    try:
        data = msgspec.json.encode(value, enc_hook=write_other)
        if isinstance(value, msgspec.Raw):  # JSON as it came, which has no NaN
            data = storable_json(data)
        refuse_unstorable(data)
        if data.find(NULL) >= 0 and not isinstance(value, msgspec.Raw):
            refuse_non_finite(msgspec.to_builtins(value, enc_hook=write_other))
    except _OF_A_TYPE as error:
        raise PayloadNotEncodable(_plain(error)) from error
    return data


def encode_plain(value: object, what: str) -> bytes | None:
    """As :func:`encode_result`, of a value that is read as plain JSON values: warn if it arrives as another value.

    Args:
        value: the value.
        what: how messages call it.

    Raises:
        PayloadNotEncodable: as for :func:`encode_result`, or a part of it would be lost.
    """
    data = encode_result(value)
    if data is None:
        return None
    arrived = msgspec.json.decode(data)
    require_whole(what, value, arrived)
    change = next(changes(what, value, arrived, asked=False), None)
    if change is not None:
        warn_of_change(change, "send plain values, and convert them where they are read")
    return data


def _at_argument(payload: msgspec.Struct, error: BaseException) -> str:
    """The start of a message: which argument has no JSON form. Empty where the error says it, or all of them have one.

    It encodes the arguments again, one by one, so it is called only after a failure.
    """
    if isinstance(error, msgspec.ValidationError):
        return ""
    for name in payload.__struct_fields__:
        try:
            encode_result(getattr(payload, name))
        except PayloadNotEncodable:
            return f"argument `{name}`: "
    return ""


def _at_defaults(payload: msgspec.Struct, names: Collection[str]) -> msgspec.Struct:
    """The payload with equal values replaced by the default objects: msgspec leaves out only these."""
    changed = {
        name: default
        for name, default in _defaults(type(payload))
        if name in names and _same(getattr(payload, name), default)
    }
    return msgspec.structs.replace(payload, **changed) if changed else payload


@lru_cache(maxsize=1_024)  # to ask msgspec costs 8 µs
def _defaults(of: type[msgspec.Struct]) -> Sequence[tuple[str, object]]:
    fields = msgspec.structs.fields(of)
    return [(field.name, field.default) for field in fields if field.default is not msgspec.NODEFAULT]


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        hints = get_type_hints(function, include_extras=True)
        making = getattr(function, "__init__", None) if isinstance(function, type) else None
        if inspect.isfunction(making):  # an item of a batch task
            hints |= get_type_hints(making, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"task {function.__qualname__}: {error} when its annotations are read; "
            "import the name outside of `if TYPE_CHECKING`"
        ) from error
    found = inspect.signature(function).parameters.values()
    return [p.replace(annotation=hints.get(p.name, Any)) for p in found]


def _payload_struct(name: str, parameters: list[inspect.Parameter]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name.rpartition(".")[2].strip("<>") or "payload",
        [_field(p) for p in parameters],
        frozen=True,
        gc=False,
        omit_defaults=True,
        forbid_unknown_fields=True,
        kw_only=any(p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters),
    )


def _of_any_type(parameter: inspect.Parameter) -> inspect.Parameter:
    default = _EMPTY if parameter.default is _EMPTY else None
    return parameter.replace(annotation=Any, default=default)


def _field(parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - defstruct takes tuples of three shapes
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            return parameter.name, list[parameter.annotation], msgspec.field(default_factory=list)  # type: ignore[name-defined]
        case inspect.Parameter.VAR_KEYWORD:
            return parameter.name, dict[str, parameter.annotation], msgspec.field(default_factory=dict)  # type: ignore[name-defined]
    default = parameter.default
    if default is _EMPTY:
        return parameter.name, parameter.annotation
    if isinstance(default, (list, dict, set, bytearray)):
        return parameter.name, parameter.annotation, msgspec.field(default_factory=lambda: default)
    return parameter.name, parameter.annotation, default


def _written(error: BaseException) -> str:
    """The end of a message: who wrote the JSON that a model refuses."""
    if not isinstance(error.__cause__, Unreadable):
        return ""
    return "; pgqueue wrote that: a model is written by the names of its fields, and read by its names and aliases"


def _plain(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "a string holds half of a surrogate pair, which UTF-8 cannot hold"
    # msgspec's $.order_id is the parameter order_id.
    return str(error).replace("`$.", "`") or type(error).__name__
