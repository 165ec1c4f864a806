"""The statements of ``sql/``, by name, for one schema."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from pgqueue.store.schema_names import check_schema

WRITTEN_FOR = "pgqueue."
MIGRATE_HINT = "run `pgqueue migrate`"


class Catalogue:
    """What each statement says, with the configured schema in place of ``pgqueue``.

    Attributes:
        schema: where the tables are.
        migrate_hint: what to tell a user whose tables are missing or too old.
    """

    def __init__(self, schema: str, migrate_hint: str) -> None:
        """Read every file of ``sql/``.

        Args:
            schema: lower-case letters, digits and underscores, so that it never needs quoting.
            migrate_hint: what to tell a user whose tables are missing or too old.

        Raises:
            InvalidOption: the name is anything else.
        """
        self.schema = check_schema(schema)
        self.migrate_hint = migrate_hint
        self._texts = {name: in_schema(text, schema).encode() for name, text in _written().items()}

    def __getitem__(self, name: str) -> bytes:
        """The text of a statement, as it is sent."""
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        """The names of all statements."""
        return iter(self._texts)

    @property
    def wake_channel(self) -> str:
        """The channel on which sleeping workers are told to look again."""
        return f"{self.schema}.wake"


def catalogue_of(schema: str, *, migrate_hint: str = MIGRATE_HINT) -> Catalogue:
    """The catalogue of a schema, read once a process; arguments as for :class:`Catalogue`."""
    return _catalogue(schema, migrate_hint)


_catalogue = cache(Catalogue)


def in_schema(text: str, schema: str) -> str:
    """SQL written for the schema ``pgqueue``, for another one."""
    return text.replace(WRITTEN_FOR, f"{schema}.")


@cache
def _written() -> dict[str, str]:
    return {
        file.name.removesuffix(".sql"): _body(file.read_text(encoding="utf-8"))
        for file in files("pgqueue.sql").iterdir()
        if file.name.endswith(".sql")
    }


def _body(text: str) -> str:
    """The statement without its header, which need not travel."""
    lines = text.splitlines()
    while lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines)
