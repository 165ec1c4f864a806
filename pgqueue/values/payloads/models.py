"""Recognises objects that belong to a database session, which no job can carry, and says what to enqueue instead.

They are recognised by their attributes, so neither Django nor SQLAlchemy is imported.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pgqueue.errors import ConfigurationError


def remedy_for(value: object) -> str:
    """The end of an error message about a value without a JSON form; empty for other values."""
    if is_model(type(value)):
        return "; enqueue its primary key and load it in the task"
    if hasattr(value, "model") and hasattr(value, "query"):
        return "; enqueue the primary keys, as a list, and load the rows in the task"
    if type(value).__module__ == "django.utils.functional":
        return "; it is a lazy string: enqueue str(...) of it"
    return ""


def is_model(kind: type) -> bool:
    """Whether a class is a model of Django, SQLAlchemy or peewee that has no JSON form of its own."""
    if hasattr(kind, "model_dump"):
        return False
    return hasattr(kind, "_sa_class_manager") or (
        hasattr(kind, "_meta") and (hasattr(kind, "pk") or hasattr(kind, "_pk"))
    )


def refuse_models(task: str, annotations: Mapping[str, Any]) -> None:
    """Refuse parameters that are annotated with a model.

    Args:
        task: the task's name, for the message.
        annotations: the parameters' annotations, by name; those that are still text are skipped.

    Raises:
        ConfigurationError: a parameter is annotated with a model.
    """
    for name, annotation in annotations.items():
        for kind in _classes(annotation):
            if is_model(kind):
                raise ConfigurationError(
                    f"task {task}: parameter {name!r} is annotated with the model {kind.__module__}.{kind.__qualname__}, "
                    f"which no job can carry; enqueue its primary key and load it in the task: {name}_id: int"
                )


def _classes(annotation: Any) -> Iterator[type]:  # noqa: ANN401 - any annotation
    if inspect.isclass(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)
