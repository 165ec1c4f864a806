"""A standalone cluster of Spark on this machine: a master, and two workers that have an address each.

Under ``local-cluster`` all executors have one address, and Spark starts no second attempt of a slow task there.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

WORKERS = ("127.0.0.2", "127.0.0.3")


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Start a cluster whose executors have one core and 1 GB each; its master's address. They end with the block.

    Args:
        folder: for the executors' files.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(_daemon("master.Master", "--host", "127.0.0.1", "--port", str(port)))
        for host in WORKERS:  # each asks for the master until it is there
            words = ("--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host))
            running.enter_context(_daemon("worker.Worker", *words, master))
        yield master


@contextmanager
def _daemon(name: str, *words: str) -> Iterator[None]:
    program = Path(pyspark.__file__).with_name("bin") / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *words]
    quiet = subprocess.DEVNULL
    env = {**os.environ, "SPARK_DAEMON_JAVA_OPTS": os.environ["SPARK_SUBMIT_OPTS"]}
    with subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet) as process:  # noqa: S603 - our own words
        try:
            yield
        finally:
            process.terminate()
