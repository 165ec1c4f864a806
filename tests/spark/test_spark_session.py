"""The session: what it relies on, and what it says where Spark cannot run.

Errors of Spark are told in one line, with their innermost cause.
"""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from pgqueue.errors import SparkMissing
from pgqueue.spark import session as sessions
from pgqueue.spark.session import LONGEST, check_java, in_a_line, name_python, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _java(folder: Path, says: str, *, code: int = 0) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_the_session_counts_in_utc_with_ansi(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_no_java_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SparkMissing, match="no java on the PATH: install Java 17"):
        check_java()


@pytest.mark.parametrize(
    ("says", "code", "complaint"),
    [
        ('openjdk version "11.0.2"', 0, "is Java 11: install Java 17"),
        ('java version "1.8.0_292"', 0, "is Java 8: install Java 17"),
        ("no version here", 0, "does not say which version"),
        ('openjdk version "17.0.1"', 3, "does not run"),
    ],
)
def test_a_java_of_no_use_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, code: int, complaint: str
) -> None:
    _java(tmp_path, says, code=code)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SparkMissing, match=complaint) as refused:
        check_java()
    assert str(tmp_path) in str(refused.value)


def test_a_later_java_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path, 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert check_java() == 21


def test_another_thread_finds_the_session_and_changes_none_of_its_settings(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(session).result()

    assert found is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before == "2"


def test_the_settings_of_a_session_that_runs_stay_as_they_are(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    users = spark.newSession()
    own = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": "7",
        "shop.colour": "green",
    }
    for name, value in own.items():
        users.conf.set(name, value)
    users.range(3).createOrReplaceTempView("three")
    monkeypatch.setattr(sessions, "_running_session", lambda: users)

    found = session()

    assert {name: users.conf.get(name) for name in own} == own
    assert users.sql("select cast('x' as int) as n").collect()[0]["n"] is None
    assert {name: found.conf.get(name) for name in own} == {**own, **sessions.RELIED_ON}
    assert found.table("three").count() == 3
    assert found.sparkContext is users.sparkContext
    for one in (found, users):  # the source is known in both
        with pytest.raises(AnalysisException, match="there is no table 'histroy'"):
            one.read.format("pgqueue").options(table="histroy").load()


NOISY = """
import subprocess, sys, threading
from pgqueue.spark.session import without_noise

with without_noise():
    child = subprocess.Popen(["sh", "-c", 'read _; cat >&2'], stdin=subprocess.PIPE)
child.communicate(b'go\\nSetting default log level to "WARN".\\nspark: ERROR Executor: broken\\n'
                  b'WARNING: Using incubator modules: jdk.incubator.vector\\nthe end\\n')
[thread.join() for thread in threading.enumerate() if thread.name == "pgqueue-spark-stderr"]
print("ours", file=sys.stderr)
"""


def test_only_the_lines_that_say_nothing_are_kept_from_our_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    assert done.stderr == "spark: ERROR Executor: broken\nthe end\nours\n"


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,512]", "spark://host:7077"])
def test_sparks_python_is_ours_unless_another_is_named(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    name_python(master)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    name_python(master)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_resource_managers_nodes_name_their_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    name_python("yarn")
    assert "PYSPARK_PYTHON" not in os.environ


QUIET = """
from pgqueue.spark.session import session
spark = session(master="local[1]")
assert spark.range(3).count() == 3
spark.stop()
"""


@pytest.mark.timeout(600)  # it starts a JVM of its own, beside those of the suite
def test_a_local_session_starts_and_ends_without_a_line_on_stderr(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", QUIET], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


JAVA = """An error occurred while calling o57.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:776)
Caused by: org.apache.spark.SparkException: [FAILED] something between
\tat org.apache.spark.Task.run(Task.scala:147)
Caused by: java.io.IOException: Mkdirs failed to create file:/lake/queue=x
\t... 13 more
"""
CAUSED = (
    "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030: "
    "java.io.IOException: Mkdirs failed to create file:/lake/queue=x"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JAVA, CAUSED),
        ("no\nCaused by: no", "no"),
        ("  plain  ", "plain"),
        ("", "OSError"),
        ("x" * 5_000, "x" * LONGEST + "…"),
    ],
)
def test_the_stack_is_left_out_and_the_cause_is_kept(text: str, said: str) -> None:
    assert in_a_line(OSError(text)) == said
