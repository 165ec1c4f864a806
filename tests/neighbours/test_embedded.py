"""The throwaway server: it starts wherever it is called, and changes nothing outside of its own folder."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgqueue import embedded
from pgqueue.embedded import embedded_binaries, embedded_server, throwaway_server
from pgqueue.errors import ConfigurationError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user run the server")


def folder_of(dsn: str) -> Path:
    return Path(str(conninfo_to_dict(dsn)["host"]))


def answer(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select current_setting('server_version_num')::int / 10000").fetchone()


def modes(*paths: Path) -> dict[Path, int]:
    """The permissions of these and of all folders above them."""
    return {one: S_IMODE(one.stat().st_mode) for path in paths for one in (path, *path.parents)}


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR is below a folder that only its owner may enter; its name is short, as a socket needs it."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as own:
        place = Path(own) / "t"
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        yield place


def test_the_server_changes_no_permission_above_its_folder_and_leaves_no_file(private: Path) -> None:
    before = modes(private, embedded_binaries(), embedded_binaries() / "initdb")
    users = Path("/etc/passwd").read_bytes()
    with embedded_server() as dsn:
        assert answer(dsn) == (18,)
        folder = folder_of(dsn)
        assert S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()
    assert list(private.iterdir()) == []
    assert modes(private, embedded_binaries(), embedded_binaries() / "initdb") == before
    assert Path("/etc/passwd").read_bytes() == users


def test_a_long_name_for_temporary_files_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as own:
        Path(own).chmod(0o711)  # its length alone is to be in the way
        place = Path(own) / ("long" * 30)
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        with embedded_server() as dsn:
            assert answer(dsn) == (18,)


@as_root
def test_binaries_that_the_servers_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    there = embedded_binaries().parent
    for source in (there, there.parent.with_name(f"{embedded.PACKAGE}.libs")):
        shutil.copytree(source, closed / source.relative_to(there.parents[1]), symlinks=True)
    closed.chmod(0o700)
    with throwaway_server(closed / embedded.PACKAGE / embedded.INSTALLED / "bin") as server:
        assert answer(server.dsn) == (18,)
    assert S_IMODE(closed.stat().st_mode) == 0o700


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "PLACES", ())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with (
        pytest.raises(ConfigurationError, match="set TMPDIR to one with a short and plain path"),
        embedded_server(),
    ):
        pass


def test_without_the_extra_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "not_there")
    with (
        pytest.raises(
            ConfigurationError, match=r"set PGQUEUE_TEST_DSN, or .*pip install 'pgqueue-jobs\[embedded\]'"
        ),
        embedded_server(instead="set PGQUEUE_TEST_DSN"),
    ):
        pass


KILLED = """
import os, signal
from pgqueue.embedded import embedded_server
with embedded_server() as dsn:
    print(dsn, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_deleted_at_the_next_start_and_no_other(private: Path) -> None:
    killed = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", KILLED],
        env={**os.environ, "TMPDIR": str(private)},
        capture_output=True,
        check=False,
    )
    left = folder_of(killed.stdout.decode().strip())
    users_own = private / "pgqueue-mine"
    users_own.mkdir()
    server = int((left / "data" / "postmaster.pid").read_text().partition("\n")[0])
    try:
        with embedded_server() as first:
            assert not left.exists()
            with embedded_server():
                assert answer(first) == (18,)
        assert list(private.iterdir()) == [users_own]
    finally:
        with suppress(ProcessLookupError):  # by itself it stops within a minute
            os.kill(server, signal.SIGQUIT)
