"""A task's return annotation, and how a stored result is decoded to it."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from pgqueue.errors import PayloadNotDecodable
from pgqueue.values.payload import _decode_other

NOT_RETURNED: Final = b"null"
"""Stored as the result if the task completed its job before it returned; a returned None is stored as SQL null."""


class ReturnType:
    """The return annotation of a task's function, read when it is first needed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read nothing yet.

        Args:
            function: the task's function.
        """
        self._function = function

    @cached_property
    def annotation(self) -> Any:  # noqa: ANN401 - any annotation
        """The type that the function returns, or that awaiting it gives; Any without an annotation."""
        annotation = get_type_hints(self._function, include_extras=True).get("return", Any)
        if get_origin(annotation) in {Awaitable, Coroutine}:
            return get_args(annotation)[-1]
        return annotation

    @property
    def is_value(self) -> bool:
        """Whether the annotation names a value: it exists, and is not None."""
        if inspect.signature(self._function).return_annotation is inspect.Signature.empty:
            return False
        return self.annotation is not type(None)

    def decode(self, data: str) -> Any:  # noqa: ANN401 - the task's own type
        """A stored result, decoded to the annotated type.

        Raises:
            PayloadNotDecodable: the result does not fit.
        """
        if not self.is_value:
            return msgspec.json.decode(data)
        try:
            return self._decoder.decode(data)
        except Exception as error:  # an unsupported type, or an error of a type's own conversion
            raise PayloadNotDecodable(f"{error}, where it returns {self._said}") from error

    @cached_property
    def _decoder(self) -> "msgspec.json.Decoder[Any]":
        return msgspec.json.Decoder(self.annotation, dec_hook=_decode_other)

    @property
    def _said(self) -> str:
        return getattr(self.annotation, "__qualname__", None) or str(self.annotation)
