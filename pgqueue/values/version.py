"""This package's name and version, as installed, and what to tell a user who has not installed it."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pgqueue.values.hints import DISTRIBUTION


def not_installed() -> ImportError:
    """The error for a clone that is imported as it lies there: ``sql/`` and ``migrations/`` are beside the package, not in it."""
    clone = Path(__file__).parents[2]
    return ImportError(
        f"Python found pgqueue in the folder {clone}, which is a clone of its repository and no installed package: "
        "its SQL is missing. Run `pip install -e .` in that folder, with the Python that you use"
    )


try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError as error:
    raise not_installed() from error
