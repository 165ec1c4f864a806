"""Checks a schema's name: statements and the notification channel use it without quotes."""

import re

from pgqueue.errors import InvalidOption

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
