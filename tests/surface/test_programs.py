"""Programs that tests start as forks are as ``python`` would run them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs import Program, ran

SHOWN = """
import json, os, sys, threading
threading.Thread(target=lambda: print("from a thread")).start()
import __main__
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "env": dict(os.environ), "name": __name__,
    "warnings": sys.warnoptions, "parent": os.getppid(), "group": os.getpgid(0), "bytecode": sys.dont_write_bytecode,
    "main": __main__.__dict__.get("SHOWN"), "orig": sys.orig_argv[1:], "files": sorted(os.listdir("/proc/self/fd")),
}))
SHOWN = 1
print("and on stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["-c", SHOWN, "one", "two"],
        ["-m", "shown", "one"],
        ["shown.py", "one"],
        ["-W", "error", "-m", "shown"],
    ],
)
def test_a_fork_sees_what_a_program_sees(words: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    env = {"HOME": "/somewhere", "PYTHONPATH": "/else:/where", "PYTHONDONTWRITEBYTECODE": "1"}
    command, pipe = [sys.executable, *words], subprocess.PIPE
    started = subprocess.run(command, env=env, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, check=False)  # noqa: S603
    forked = ran(words, env=env, cwd=tmp_path, timeout=60)
    assert (
        (forked.returncode, forked.stderr) == (started.returncode, started.stderr) == (7, "and on stderr\n")
    )
    shown, expected = [sorted(one.stdout.splitlines()) for one in (forked, started)]
    assert shown[0] == expected[0] == "from a thread"
    theirs, ours = json.loads(expected[1]), json.loads(shown[1])
    theirs["env"].pop("LC_CTYPE", None)  # Python's own, where there is no locale
    ours["env"].pop("LC_CTYPE", None)
    assert ours == theirs
    assert ours["parent"] == os.getpid()


def test_a_fork_has_a_process_group_of_its_own_if_it_is_to(tmp_path: Path) -> None:
    words = ["-c", "import os; print(os.getpgid(0) == os.getpid())"]
    with Program(words, cwd=tmp_path, stdout=subprocess.PIPE, process_group=0) as one:
        assert os.getpgid(one.pid) == one.pid
        assert one.communicate()[0] == "True\n"


def test_the_tests_end_a_fork_and_learn_how_it_ended(tmp_path: Path) -> None:
    # not in one long read: an interrupt just before a system call is only seen when the call has returned
    words = ["-c", "import time; print('begun', flush=True)\nwhile True: time.sleep(0.01)"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with Program(
            words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as one:
            assert one.stdout is not None
            assert one.stdout.readline() == "begun\n"
            assert one.poll() is None
            one.send_signal(number)
            assert one.wait(60) == -number


def test_what_a_fork_cannot_have_is_started_by_python(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    told = ran(
        ["-c", "import sys; print(sys.flags.hash_randomization, hash('a'))"],
        env=env,
        cwd=tmp_path,
        timeout=60,
    )
    assert told.stdout == ran(["-c", "print(1, hash('a'))"], env=env, cwd=tmp_path, timeout=60).stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_fork_keeps_back_what_python_keeps_back(unbuffered: str, tmp_path: Path) -> None:
    program = "import os; print('kept'); os._exit(0)"
    told = ran(["-c", program], env={"PYTHONUNBUFFERED": unbuffered}, cwd=tmp_path, timeout=60)
    assert told.stdout == ("kept\n" if unbuffered else "")
