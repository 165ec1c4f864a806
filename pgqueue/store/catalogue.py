"""The statements of ``sql/``, by name, for one schema.

A statement is named ``folder/name``, as its file. A folder is read when one of its statements is first asked for, since
most processes need few of them. Lists of columns that a file names in braces are written out then
(:mod:`pgqueue.store.column_lists`).
"""

import re
from functools import cache

from pgqueue.errors import InvalidOption
from pgqueue.store.column_lists import with_lists
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


@cache
def missing_grant(name: str) -> str:
    """What to tell a role that may not run a statement: which ``pgqueue grants`` gives the right.

    The file of a statement says it in its header, ``rights``: the grants that are enough, where ``ROLE`` is any of them. Without
    this line, operators and workers have the right; in the folder ``pipeline``, the roles of its page.
    """
    folder, _, file = name.partition("/")
    header = shipped("sql").joinpath(folder, f"{file}.sql").read_text(encoding="utf-8")
    said = _RIGHTS.search(header)
    if said is None and folder == "pipeline":
        return "the roles of the pipeline have this right (docs/pipeline/cluster.md)"
    granted = "operator, worker" if said is None else said[1]
    if granted == "owner":
        return "the owner of the tables has this right, and members of its role"
    if granted == "ROLE":
        return "each role of `pgqueue grants` but `producer --sql-only` gives this right"
    return " or ".join(f"`pgqueue grants {one}`" for one in granted.split(", ")) + " gives this right"


_RIGHTS = re.compile("^-- rights: (.+)$", re.MULTILINE)


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
        f"{folder}/{file.name.removesuffix('.sql')}": with_lists(_body(file.read_text(encoding="utf-8")))
        for file in where.iterdir()
        if file.name.endswith(".sql")
    }


def _body(text: str) -> str:
    lines = text.splitlines()
    # The header need not travel.
    while lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines)


_NAME = re.compile(r"[a-z_][a-z0-9_]*")
LONGEST = 63 - len(".wake")
"""A channel's name has at most 63 bytes, and workers listen on ``<schema>.wake``."""
RESERVED = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both
    case cast char character check coalesce collate collation column concurrently constraint create cross
    current_catalog current_date current_role current_schema current_time current_timestamp current_user dec
    decimal default deferrable desc distinct do else end except exists extract false fetch float for foreign
    freeze from full grant greatest group grouping having ilike in initially inner inout int integer
    intersect interval into is isnull join json json_array json_arrayagg json_exists json_object
    json_objectagg json_query json_scalar json_serialize json_table json_value lateral leading least left
    like limit localtime localtimestamp merge_action national natural nchar none normalize not notnull null
    nullif numeric offset on only or order out outer overlaps overlay placing position precision primary
    real references returning right row select session_user setof similar smallint some substring symmetric
    system_user table tablesample then time timestamp to trailing treat trim true union unique user using
    values varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists
    xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """.split()  # noqa: SIM905 - 160 words
)
"""Words that PostgreSQL 15 to 18 does not accept everywhere as a schema's name without quotes."""


def check_schema(name: str) -> str:
    """Check a schema's name, and return it.

    Raises:
        InvalidOption: it needs quotes, is too long, or PostgreSQL reserves it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise InvalidOption(
            f"schema={name!r:.100}: use lower-case letters, digits and underscores, at most {LONGEST}"
        )
    if name in RESERVED or name.startswith("pg_"):
        raise InvalidOption(
            f"schema={name!r}: PostgreSQL keeps this name for itself; use another, like {name[:40]}_jobs"
        )
    return name
