"""The statements of ``sql/``, by name, for one schema.

The queue's own statements stand in ``sql/`` itself, and are read at once. Those of the pipeline, of adoption and of
others stand in folders, and are named ``folder/name``: a folder is read when one of its statements is first asked
for, since most processes need none of them.
"""

from functools import cache

from pgqueue.store.schema_names import check_schema
from pgqueue.store.shipped import shipped

WRITTEN_FOR = "pgqueue."
MIGRATE_HINT = "run `pgqueue migrate`"


class Catalogue:
    """What each statement says, with the configured schema in place of ``pgqueue``.

    Attributes:
        schema: where the tables are.
        migrate_hint: what to tell a user whose tables are missing or too old.
    """

    def __init__(self, schema: str, migrate_hint: str) -> None:
        """Check the schema's name, and read what every process needs.

        Args:
            schema: lower-case letters, digits and underscores, so that it never needs quoting.
            migrate_hint: what to tell a user whose tables are missing or too old.

        Raises:
            InvalidOption: the name is anything else.
        """
        self.schema = check_schema(schema)
        self.migrate_hint = migrate_hint
        self._texts = _Texts(schema)
        self._texts.read("jobs")

    def __getitem__(self, name: str) -> bytes:
        return self._texts[name]

    @property
    def wake_channel(self) -> str:
        """The channel on which sleeping workers are told to look again."""
        return f"{self.schema}.wake"

    @property
    def ended_channel(self) -> str:
        """The channel on which programs are told of the ends of the jobs that they wait for."""
        return f"{self.schema}.ended"


def catalogue_of(schema: str, *, migrate_hint: str = MIGRATE_HINT) -> Catalogue:
    """The catalogue of a schema, read once a process; arguments as for :class:`Catalogue`."""
    return _catalogue(schema, migrate_hint)


_catalogue = cache(Catalogue)


def in_schema(text: str, schema: str) -> str:
    """SQL written for the schema ``pgqueue``, for another one."""
    return text.replace(WRITTEN_FOR, f"{schema}.")


class _Texts(dict[str, bytes]):
    """What statements say, by name; a dictionary, since each enqueue looks one up."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = schema

    def __missing__(self, name: str) -> bytes:
        """Read the folder of a statement that is asked for the first time."""
        self.read(name.partition("/")[0])
        if name not in self:
            raise KeyError(name)
        return self[name]

    def read(self, folder: str) -> None:
        self.update(
            {name: in_schema(text, self._schema).encode() for name, text in _read_folder(folder).items()}
        )


@cache
def _read_folder(folder: str) -> dict[str, str]:
    where = shipped("sql").joinpath(folder)
    return {
        f"{folder}/{file.name.removesuffix('.sql')}": _body(file.read_text(encoding="utf-8"))
        for file in where.iterdir()
        if file.name.endswith(".sql")
    }


def _body(text: str) -> str:
    lines = text.splitlines()
    # The header need not travel.
    while lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines)
