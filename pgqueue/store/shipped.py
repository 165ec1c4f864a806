"""The folders beside the package that are installed as parts of it."""

from importlib.resources import files
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def shipped(folder: Literal["sql", "migrations"]) -> "Traversable":
    """One of these folders.

    Raises:
        ImportError: Python imports a clone of the repository that is not installed.
    """
    try:
        return files(f"pgqueue.{folder}")
    except ModuleNotFoundError as error:
        from pgqueue.values.version import not_installed  # noqa: PLC0415 - it reads the package's metadata

        raise not_installed() from error
