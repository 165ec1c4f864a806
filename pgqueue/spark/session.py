"""The Spark session that the pipeline uses: the running one, or a new local one.

Under ``spark-submit``, in a notebook or over Spark Connect a session runs already. It is used, with the settings on
which pgqueue relies. Otherwise a session is started on this machine, which needs Java.

Spark reads PostgreSQL in Python processes that import pgqueue. On this machine, and on a standalone cluster
(``spark://``), they are started with this process's Python unless ``PYSPARK_PYTHON`` names another one: the nodes of a
cluster need pgqueue under that path.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pgqueue.errors import SparkMissing
from pgqueue.spark.quiet import without_noise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
RELIED_ON: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days, in every time zone of the driver
    "spark.sql.ansi.enabled": "true",  # an overflow is an error, not a null
    "spark.sql.python.filterPushdown.enabled": "true",  # filters go to PostgreSQL
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


def session(*, master: str | None = None, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """The running session, or a new one, with our data source registered in it.

    Args:
        master: where to start a new session: ``local[*]`` by default, a cluster's master, or the ``sc://`` address of a
            Spark Connect server.
        settings: Spark's own settings for a new session.

    Raises:
        SparkMissing: PySpark is not installed, or there is no Java that it runs on.
    """
    if find_spec("pyspark") is None:
        raise SparkMissing("PySpark is not installed: pip install 'pgqueue[spark]'")
    from pgqueue.spark.source import here  # noqa: PLC0415 - it needs PySpark

    found = _running() or _started(master, settings or {})
    for name, value in RELIED_ON.items():
        found.conf.set(name, value)
    found.dataSource.register(here())
    return found


def _running() -> "SparkSession | None":
    """The session that this thread or this process already has."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - heavy
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy import

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _started(master: str | None, settings: Mapping[str, str]) -> "SparkSession":
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
