"""The Spark session that the pipeline uses: one beside the running one, or a new local one; its settings, and its errors.

Under ``spark-submit``, in a notebook or over Spark Connect a session runs already. Its settings stay as they are: where they
are not those on which pgqueue relies, a session beside it has them, with the same executors. Otherwise a session is started
on this machine, which needs Java.

Spark reads PostgreSQL in Python processes that import pgqueue. On this machine, and on a standalone cluster
(``spark://``), they are started with this process's Python unless ``PYSPARK_PYTHON`` names another one: the nodes of a
cluster need pgqueue under that path.

Java and Spark write some lines to stderr that no setting turns off and that are of no use to a user of the pipeline. Spark's
Java process inherits our stderr, so it is given a pipe in its place. A thread copies every line from the pipe to the real
stderr, except these. Errors of Spark carry Java's stack, of several hundred lines, and the cause stands near its end.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pgqueue.errors import SparkMissing
from pgqueue.values.hints import missing_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
RELIED_ON: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days, in every time zone of the driver
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, not a null
}
LOCALLY: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",  # at most; adaptive execution joins small ones
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={files('pgqueue.spark') / 'log4j2.properties'}",
}
NOISE = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"WARNING: Using incubator module(s): jdk.incubator.vector",
    b"Using Spark's default log4j profile: ",
    b'Setting default log level to "',
    b'Setting Spark log level to "',
    b"To adjust logging level use sc.setLogLevel(",
    b"Warning: Java versions > Java 11 can only operate in restricted mode",
)
"""The beginnings of lines that are dropped."""
STDERR = 2
LONGEST = 1_000
"""Characters of an error in one line."""
_CALLING = "An error occurred while calling "
_CAUSE = "Caused by: "

SessionOrStart: TypeAlias = "SparkSession | Callable[[], SparkSession]"
"""A session, or what starts it once it is needed: small lakes need none."""


def when_needed(spark: SessionOrStart) -> "Callable[[], SparkSession]":
    """What returns the session; its first call starts it."""
    return cache(spark) if callable(spark) else lambda: spark


def session(*, master: str | None = None, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """The running session, or one beside it, or a new one, with our data source registered in it.

    A running session with other settings than :data:`RELIED_ON` is left as it is. The session beside it is a copy of it, with
    its other settings and its temporary views; our data source is registered in both.

    Args:
        master: where to start a new session: ``local[*]`` by default, a cluster's master, or the ``sc://`` address of a
            Spark Connect server.
        settings: Spark's own settings for a new session.

    Raises:
        SparkMissing: PySpark is not installed, or there is no Java that it runs on.
    """
    if find_spec("pyspark") is None:
        raise SparkMissing(
            missing_extra(
                "spark", "Spark is needed, as for days with many jobs, and PySpark is not installed"
            )
        )
    found = _running_session() or _start_session(master, settings or {})
    _register(found)
    if all(found.conf.get(name, None) == value for name, value in RELIED_ON.items()):
        return found
    beside = _copy_session(found)
    for name, value in RELIED_ON.items():
        beside.conf.set(name, value)
    return beside


def _running_session() -> "SparkSession | None":
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - heavy
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy import

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _register(found: "SparkSession") -> None:
    """Register our data source in a session, whether it is the active one or not.

    Spark refuses a name that it finds in the active session, though sources are those of one session: so the second notebook of
    an application could not register what the first one has.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - heavy
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    from pgqueue.spark.source import here  # noqa: PLC0415 - it needs PySpark

    try:
        found.dataSource.register(here())
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        active, java = SparkSession.getActiveSession(), cast("Any", found._jvm)  # noqa: SLF001 - there is no other way
        java.SparkSession.setActiveSession(found._jsparkSession)  # noqa: SLF001
        try:
            found.dataSource.register(here())
        finally:
            if active is not None:
                java.SparkSession.setActiveSession(active._jsparkSession)  # noqa: SLF001


def _copy_session(found: "SparkSession") -> "SparkSession":
    """A session of the same application, with the settings, temporary views and data sources of this one."""
    if hasattr(found, "cloneSession"):  # Spark Connect has it for Python, too
        copied: SparkSession = found.cloneSession()
        return copied
    return type(found)(found.sparkContext, found._jsparkSession.cloneSession())  # noqa: SLF001 - as newSession() does


def _start_session(master: str | None, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    builder = SparkSession.builder.appName("pgqueue")
    remote = os.environ.get("SPARK_REMOTE") if master is None else master
    if remote and remote.startswith("sc://"):
        return builder.remote(remote).getOrCreate()
    check_java()
    where = master or os.environ.get("MASTER")
    if where is None and "spark.master" not in settings and "PYSPARK_GATEWAY_PORT" not in os.environ:
        where = "local[*]"  # under spark-submit the master is the one submitted to
    if where is not None:
        builder = builder.master(where)
    given = {**RELIED_ON, **(LOCALLY if (where or "").startswith("local") else {}), **settings}
    for name, value in given.items():
        builder = builder.config(name, value)
    name_python(where or settings.get("spark.master", ""))
    with without_noise():
        return builder.getOrCreate()


def name_python(master: str) -> None:
    """Have Spark's Python processes run this process's Python, where it is likely to exist.

    Without it they run the PATH's ``python3``, and a read fails with "No module named 'pgqueue'".
    """
    if master.startswith(("local", "spark://")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_java() -> int:
    """The major version of the Java that Spark will find.

    Raises:
        SparkMissing: there is no Java, or it is too old; the message names the one found, and its path.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = (
        f"install Java {OLDEST_JAVA} or later (Debian: openjdk-17-jre-headless), or point JAVA_HOME at it"
    )
    if program is None:
        raise SparkMissing(f"Spark needs Java, and there is no java on the PATH: {remedy}")
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkMissing(f"Spark needs Java, and {program} does not run ({error}): {remedy}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None:
        raise SparkMissing(f"Spark needs Java, and {program} does not say which version it is: {remedy}")
    major = int(found[1])
    if major < OLDEST_JAVA:
        raise SparkMissing(
            f"Spark needs Java {OLDEST_JAVA} or later, and {program} is Java {major}: {remedy}"
        )
    return major


@contextmanager
def without_noise() -> Iterator[None]:
    """Filter the stderr of a process that is started in this block, until that process ends."""
    try:
        ours = os.dup(STDERR)
    except OSError:  # a process without stderr has nothing to filter
        yield
        return
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)
    os.close(writing)
    threading.Thread(
        target=_pass_on, args=(reading, os.dup(ours)), name="pgqueue-spark-stderr", daemon=True
    ).start()
    try:
        yield
    finally:
        os.dup2(ours, STDERR)
        os.close(ours)


def _pass_on(reading: int, target: int) -> None:
    """Copy line by line, until the last process that may write to the pipe has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(NOISE):
                out.write(line)


@contextmanager
def with_settings(spark: "SparkSession", wanted: Mapping[str, str]) -> Iterator[None]:
    """Use settings for the length of the block; the former ones are restored."""
    former: dict[str, str | None] = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in former.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def in_a_line(error: BaseException) -> str:
    """What an error says, and its innermost cause, without Java's stack.

    Args:
        error: any error; one of Python is told by its text.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line.removeprefix(": ") for line in lines if not line.startswith(_CALLING)]
    if not told:
        return type(error).__name__
    head = told[0]
    causes = [line.removeprefix(_CAUSE) for line in told if line.startswith(_CAUSE)]
    said = f"{head}: {causes[-1]}" if causes and causes[-1] not in head else head
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def require_no_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if a Ctrl-C ended a call of Java: py4j may raise a network error while it handles the interrupt.

    Raises:
        KeyboardInterrupt: the error, or one that it replaced, is an interrupt.
    """
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        one = one.__context__


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, or its Java process, raised an error."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}
