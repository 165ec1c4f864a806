"""A function's return annotation, of a task or of a step, and how a stored result is decoded to it."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property, partial
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as inspect_types

from pgqueue.errors import ConfigurationError, PayloadNotDecodable
from pgqueue.values.payloads.arrival import require_whole
from pgqueue.values.payloads.other_types import is_readable, read_other, types_within
from pgqueue.values.payloads.schema import schema_of
from pgqueue.values.payloads.signature import encode_result

_ARRIVING: Final = (str, int, float, bool)
"""Values of these types arrive unchanged, or do not fit the annotation."""


class ReturnType:
    """The return annotation of a function, read when it is first needed.

    Attributes:
        function: of a task or of a step.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def annotation(self) -> Any:  # noqa: ANN401 - any annotation
        """The type that the function returns, or that awaiting it gives; Any without an annotation."""
        annotation = get_type_hints(self.function, include_extras=True).get("return", Any)
        if get_origin(annotation) in {Awaitable, Coroutine}:
            return get_args(annotation)[-1]
        return annotation

    @cached_property
    def is_value(self) -> bool:
        """Whether the annotation names a value: it exists, and is not None."""
        if inspect.signature(self.function).return_annotation is inspect.Signature.empty:
            return False
        return self.annotation is not type(None)

    def require_readable(self) -> None:
        """Refuse an annotation that no stored result can be read as.

        Raises:
            ConfigurationError: it names a type that JSON cannot carry, or it cannot be resolved.
        """
        try:
            found = types_within(inspect_types.type_info(self.annotation)) if self.is_value else []
        except NameError as error:
            raise ConfigurationError(f"{error}; import the name outside of `if TYPE_CHECKING`") from error
        except TypeError as error:
            raise ConfigurationError(
                f"{error}; annotate what it returns as a type that JSON can carry"
            ) from error
        for one in found:
            if isinstance(one, inspect_types.CustomType) and not is_readable(one.cls):
                raise ConfigurationError(
                    f"a {one.cls.__module__}.{one.cls.__qualname__} cannot be read from JSON; "
                    "return a dataclass or plain values"
                )

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of what the function returns; None: it does not say, or there is none."""
        return schema_of(self.annotation) if self.is_value else None

    def decode(self, data: str | bytes) -> Any:  # noqa: ANN401 - the function's own type
        """A stored result, decoded to the annotated type.

        Raises:
            PayloadNotDecodable: the result does not fit.
        """
        try:
            return self._decoder.decode(data) if self.is_value else msgspec.json.decode(data)
        except Exception as error:  # an unsupported type, or an error of a type's own conversion
            raise PayloadNotDecodable(f"{error}, where it returns {self._said}") from error

    def encode(self, value: object, what: str = "result") -> bytes | None:
        """A value that the function returned, as JSON; None for None.

        Args:
            value: the value.
            what: how messages call it.

        Raises:
            PayloadNotEncodable: it has no JSON form, or a part of it would be lost when it is read as annotated.
        """
        data = encode_result(value)
        if data is None or isinstance(value, _ARRIVING):
            return data
        try:
            arrived = self.decode(data)
        except Exception:  # noqa: BLE001 - the caller that reads it is told, and plain JSON values can be had
            return data
        require_whole(what, value, arrived)
        return data

    @cached_property
    def _decoder(self) -> "msgspec.json.Decoder[Any]":
        return msgspec.json.Decoder(self.annotation, dec_hook=read_other)

    @property
    def _said(self) -> str:
        return getattr(self.annotation, "__qualname__", None) or str(self.annotation)


class ItemType(ReturnType):
    """The return annotation of a batch task, for one job: that of a list's items."""

    @cached_property
    def annotation(self) -> Any:  # noqa: ANN401 - any annotation
        """The type of what the function returns for a job."""
        whole = ReturnType(self.function).annotation
        return next(iter(get_args(whole)), Any) if get_origin(whole) is list else whole


def returned_by(function: Callable[..., Any], last: ReturnType | None = None) -> ReturnType:
    """What any callable returns: a function, a method, a class, a partial, an object with ``__call__``.

    Args:
        function: the callable.
        last: what was returned before; reading an annotation again takes 0.15 ms.
    """
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return ReturnType(_function_returning(function))
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    if "return" not in getattr(
        function, "__annotations__", ()
    ):  # also what is written in C, which says nothing
        return _UNSAID
    return last if last is not None and last.function is function else ReturnType(function)


def _function_returning(kind: type) -> Callable[[], Any]:
    """Return a function whose annotation says that it returns this type."""

    def made() -> None: ...

    made.__annotations__["return"] = kind
    return made


def _unannotated():  # type: ignore[no-untyped-def]  # noqa: ANN202 - as it says
    ...


_UNSAID = ReturnType(_unannotated)
