"""A Python that has imported what programs of the tests import first; each program is a fork of it.

It reads requests from the socket on its standard input, and ends when that is closed. A program gets its own arguments,
environment, folder, standard streams and process group, and runs as ``python -m``, ``python -c`` or ``python file`` would run
it. :mod:`programs` says which programs are started in this way.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import warnings
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

LARGEST_REQUEST = 1 << 20
ADOPTED = b"adopted"


def main(modules: list[str]) -> None:
    """Import these modules, answer requests with process ids, and run the program in each fork."""
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a program that is interrupted must not end the others
    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    request = _fork_for_each(socket.socket(fileno=os.dup(0)))
    if request is not None:
        _become(request)
        _run(request["words"])


def _fork_for_each(requests: socket.socket) -> Any:
    """The request, in the process that is to run it; None where there are no more."""
    while True:
        told, streams, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 3)
        if not told:
            return None
        between = os.fork()
        if not between:
            return _in_a_grandchild(requests, json.loads(told), streams)
        os.waitpid(between, 0)
        requests.send(ADOPTED)
        for stream in streams:
            os.close(stream)


def _in_a_grandchild(requests: socket.socket, request: Any, streams: list[int]) -> Any:
    """Have the tests' process adopt the program: its parent, this process, ends at once."""
    between = os.getpid()
    program = os.fork()
    if program:
        if request["group"] is not None:
            os.setpgid(program, request["group"])
        requests.send(str(program).encode())
        os._exit(0)
    requests.close()
    while os.getppid() == between:
        time.sleep(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return request


def _become(request: Any) -> None:
    """Take over the program's environment, folder, streams and signals."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.stdout = _as_python_opens(1, sys.stdout)
    sys.stderr = _as_python_opens(2, sys.stderr)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))


def _as_python_opens(number: int, stream: TextIO) -> TextIO:
    """A standard stream that keeps back what Python keeps back: nothing if the environment says so, else lines or blocks."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    return TextIOWrapper(
        open(number, "wb", 0 if at_once else -1, closefd=False),
        stream.encoding,
        stream.errors,
        line_buffering=number == 2 or os.isatty(number),
        write_through=at_once,
    )


def _run(words: list[str]) -> None:
    """Run the program as Python's own options say; what it raises ends this process as it would end its own."""
    sys.orig_argv = [sys.executable, *words]
    while words[0] == "-W":
        sys.warnoptions.append(words[1])
        warnings.simplefilter(words[1])  # type: ignore[arg-type]  # programs refuses others
        words = words[2:]
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = here = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(here))  # noqa: S102 - a test's own words
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1:])
