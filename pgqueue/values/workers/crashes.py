"""Jobs whose attempts end with their worker: when such a job is quarantined, and what becomes of it then. Pure rules.

A job is a suspect from the first time that it was claimed by a worker that died. Which of that worker's claims had started
is not known, so this first loss counts as a crash of each. Before a worker starts an attempt of a suspect, it notes that in
the database; a later loss counts only where the start was noted. So claims that wait in the memory of a dead worker are
counted once at most, however often their workers die.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.options import check_number, one_of
from pgqueue.values.jobs.verdict import Died
from pgqueue.values.workers.lease import spoken_bytes

Then: TypeAlias = Literal["isolate", "dead"]
THEN = ("isolate", "dead")
LIMITS = range(1, 10)
"""Ten errors are kept with a job, and crashes are counted in them."""
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
LEAST_MEMORY = 10**6
TYPE = "JobCrashed"


@dataclass(frozen=True, slots=True)
class Crashes:
    """What becomes of a job whose attempts end with their worker, as when it takes all memory or breaks the interpreter.

    Attributes:
        limit: after how many such attempts the job is quarantined, 1…9.
        then: ``isolate``: each further attempt runs alone, in a process of its own, and the job is dead if that process dies;
            ``dead``: the job is dead at once.
        memory: how much memory an isolated attempt may take beyond what the app takes after its import, as ``"512 MB"`` or
            in bytes; None: half of what is free on the machine, or in the container.

    Raises:
        InvalidOption: a value is out of its range.
    """

    limit: int = 3
    then: Then = "isolate"
    memory: int | str | None = None

    def __post_init__(self) -> None:
        check_number("Crashes(limit=...)", self.limit, LIMITS)
        one_of("Crashes(then=...)", self.then, THEN, listed=repr)
        _ = self.bytes

    @property
    def bytes(self) -> int | None:
        """The limit of memory in bytes; None: it is not given."""
        return None if self.memory is None else memory_of("Crashes(memory=...)", self.memory)


DEFAULT_CRASHES = Crashes()


class CrashCount(msgspec.Struct, frozen=True):
    """What the database says when an attempt of a suspect starts.

    Attributes:
        crashes: how many attempts of the job ended with their worker.
        memory: of the last of those workers in bytes, at its last heartbeat; None: not known.
    """

    crashes: int
    memory: int | None = None


def as_crashes(given: Crashes | int | None) -> Crashes:
    """The policy of a decorator's ``crashes=``: a number is the limit, None the default policy.

    Raises:
        InvalidOption: the value is none of these, or out of its range.
    """
    if given is None:
        return DEFAULT_CRASHES
    if isinstance(given, Crashes):
        return given
    check_number("crashes", given, LIMITS)
    return Crashes(given)


def crash_verdict(
    claim: Claim, begun: CrashCount, seconds: float | None, how: str = "", memory: int | None = None
) -> Died:
    """The verdict on a job that has killed too many workers.

    Args:
        claim: the attempt.
        begun: how many, and the memory of the last one.
        seconds: how long the attempt ran; None: it did not.
        how: what the attempt did in a process of its own, as ``its own process: signal 9 (SIGKILL)``.
        memory: that this process had, in bytes.
    """
    workers = "1 worker" if begun.crashes == 1 else f"{begun.crashes} workers"
    said = f"killed {workers}" + (f", and {how}" if how else "")
    last = memory or begun.memory
    if last is not None:
        said += f"; last RSS {spoken_bytes(last)}"
    return Died(claim, seconds, "crashed", AttemptError(claim.attempt, TYPE, said, memory=last))


def memory_of(what: str, given: int | str) -> int:
    """How many bytes of memory an option says.

    Args:
        what: the option's name.
        given: bytes, or a text such as ``"512 MB"``.

    Raises:
        InvalidOption: it says no number of bytes, or too few.
    """
    number: float = -1
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    elif isinstance(given, str) and (
        found := re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*", given)
    ):
        number = float(found[1]) * UNITS.get(found[2].upper(), -1)
    if not LEAST_MEMORY <= number < 2**62:
        raise InvalidOption(
            f"{what}: {given!r:.80} is no amount of memory; use bytes or a text such as '512 MB' or '2 GiB', from 1 MB"
        )
    return int(number)
