"""What a limited producer (docs/adr/notes.md) costs other programs: CPU time of the server for a row, inserted alone and by COPY.

Run it: ``python tests/bench/grants.py``. It starts a server of its own. It measures CPU time of the session's process, so other
programs on the machine matter little.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from pgqueue.embedded import embedded_server
from pgqueue.store.schema import schema
from pgqueue.store.schema.grants import grant_statements, revoke_statements

ROUNDS, ALONE, COPIED = 7, 1_000, 20_000
INSERT = b"insert into pgqueue.jobs (task, queue, args) values ('t', 'default', '{\"n\": 1}') returning id"
COPY = b"copy pgqueue.jobs (task, queue, args) from stdin"
PRODUCERS = (0, 1, 3)


def main() -> None:
    """Measure in turn, without producers that are limited to another queue, with one and with three; print."""
    found: dict[tuple[str, int], list[float]] = {}
    with embedded_server() as dsn:
        schema.migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create role app; create role p0; create role p1; create role p2")
            _run(connection, grant_statements("worker", "app"))
            for _ in range(ROUNDS):
                for producers in PRODUCERS:
                    for one in range(producers):
                        _run(connection, grant_statements("producer", f"p{one}", queues=["mail"]))
                    connection.execute("set role app")
                    for what, fill, rows in (("alone", _alone, ALONE), ("COPY", _copied, COPIED)):
                        found.setdefault((what, producers), []).append(_cpu(connection, fill) / rows)
                    connection.execute("reset role; truncate pgqueue.jobs")
                    for one in range(producers):
                        _run(connection, revoke_statements("producer", f"p{one}"))
    for (what, producers), took in found.items():
        print(f"{what:6} {producers} limited producers: {median(took):6.2f} µs of CPU a row")  # noqa: T201


def _run(connection: psycopg.Connection[Any], statements: list[str]) -> None:
    connection.execute(";".join(statements).encode())


def _cpu(connection: psycopg.Connection[Any], fill: Callable[[psycopg.Connection[Any]], None]) -> float:
    """Microseconds of CPU that the session's process takes."""
    place = Path(f"/proc/{connection.info.backend_pid}/schedstat")
    before = int(place.read_text().split()[0])
    fill(connection)
    connection.execute("select 1")
    return (int(place.read_text().split()[0]) - before) / 1e3


def _alone(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        for _ in range(ALONE):
            connection.execute(INSERT)


def _copied(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor().copy(COPY) as rows:
        rows.write(b't\tdefault\t{"n": 1}\n' * COPIED)


if __name__ == "__main__":
    main()
