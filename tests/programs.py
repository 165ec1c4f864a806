"""Starting Python programs at a tenth of the CPU: each is a fork of a process that has imported what they import first.

A Python needs 0.2 s of CPU to import ``pgqueue`` and to end, and 0.6 s to import Django; a fork needs 0.02 s. The program
is a process like any other: a child of the tests' process, with its own environment, folder and streams. What its file
imports beyond ``pgqueue`` and the named libraries, it imports itself.

Tests whose subject is how Python starts, or what a program imports, use :mod:`subprocess`. So does this file where a
program asks for something that a fork cannot have. The work in the other process is that of ``warm.py``.
"""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

WARM = Path(__file__).with_name("warm.py")
QUEUE = ("pgqueue", "psycopg", "psycopg_pool")
UNDERSTOOD = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
PR_SET_CHILD_SUBREAPER = 36
LONGEST_ANSWER = 32

_libc = ctypes.CDLL(None)


class Program(subprocess.Popen[str]):
    """``subprocess.Popen`` for the words after ``python``; its streams are text."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        libraries: tuple[str, ...] = (),
        first: tuple[str, ...] = QUEUE,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        process_group: int | None = None,
    ) -> None:
        """Start it; arguments as for :mod:`subprocess`.

        ``first`` and ``libraries`` are imported ahead; a program that must import :mod:`pgqueue` itself gives another ``first``.
        """
        self._words = list(words)
        self._ahead = (*first, *libraries)
        command = [sys.executable, *words]
        super().__init__(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            process_group=process_group,
            text=True,
        )

    def _execute_child(self, *given: Any) -> None:
        """Ask for a fork, in place of ``fork`` and ``exec``; subprocess calls this with all its options."""
        (_, _, preexec, _, passed, cwd, env, *_, shell, p2cread, _, _, c2pwrite, _, errwrite) = given[:16]
        session, group = given[21:23]
        env = dict(os.environ if env is None else env)
        strange = {name for name in env if name.startswith("PYTHON")} - UNDERSTOOD
        if preexec or passed or shell or session or strange:
            super()._execute_child(*given)  # type: ignore[misc]  # not in typeshed
            return
        streams = [end if end != -1 else number for number, end in enumerate((p2cread, c2pwrite, errwrite))]
        request = {
            "words": self._words,
            "env": env,
            "cwd": str(cwd or Path.cwd()),
            "group": None if group == -1 else group,
        }
        try:
            self.pid = _warm(self._ahead).fork(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]  # not in typeshed


def ran(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str,
    timeout: float,
    libraries: tuple[str, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; what it printed."""
    pipe = subprocess.PIPE
    with Program(words, libraries=libraries, env=env, cwd=cwd, stdout=pipe, stderr=pipe) as program:
        try:
            out, err = program.communicate(timeout=timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


class _Warm:
    def __init__(self, modules: tuple[str, ...]) -> None:
        self._one_at_a_time = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with theirs:
            command = [sys.executable, str(WARM), *modules]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=env)  # noqa: S603
        atexit.register(self.end)

    def fork(self, request: object, streams: list[int]) -> int:
        """Run a program in a fork, which becomes a child of this process; its pid."""
        with self._one_at_a_time:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
                answer = self._socket.recv(LONGEST_ANSWER)
                adopted = self._socket.recv(LONGEST_ANSWER)
            finally:
                _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert adopted, f"{WARM} has ended"
        return int(answer)

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


_warm = cache(_Warm)
