"""The commands that serve pages or metrics until they are stopped."""

import signal
import subprocess
import sys
from functools import partial

import pytest

from pgqueue.cli.dashboard import CLOSES_IN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["dashboard", "metrics"])
def test_a_server_in_the_background_of_a_script_ends_when_it_is_told_to(
    dsn: str, command: str, number: signal.Signals
) -> None:
    ignoring = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as a shell starts its background jobs
    served = subprocess.Popen(  # noqa: S603 - a fixed command
        [sys.executable, "-m", "pgqueue", "--dsn", dsn, command, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=ignoring,  # noqa: PLW1509 - nothing else runs in the child
    )
    try:
        assert served.stdout is not None
        assert "Ctrl-C stops it" in served.stdout.readline()
        served.send_signal(number)
        assert served.wait(10 * CLOSES_IN) == 0
    finally:
        served.kill()
        served.communicate()
