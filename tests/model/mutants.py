"""Mutations of the code, each of which the model or the history has to catch. ``make mutants`` tries all of them.

A mutation replaces one piece of one file: of a statement in ``sql/``, in a catalogue of the test's own; of a function of
``pgqueue/``, whose code is exchanged for the length of a block. A piece that is not there, or is there twice, is an error: so the list
stays true when the code changes.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Literal

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyFailure, HypothesisException
from hypothesis.stateful import run_state_machine_as_test
from model.machine import Life
from model.stories import tell
from model.world import World

from pgqueue.store.catalogue import Catalogue

EXAMPLES = 40
STEPS = 50


@dataclass(frozen=True)
class Mutant:
    """A mutation, and what catches it.

    Attributes:
        file: ``sql/…`` or ``pgqueue/…``.
        old: a piece of it.
        new: what stands there instead.
        what: what is broken by that.
        by: ``model``: the tables differ from the model; ``history``: the checker alone says that a promise did not hold.
        seed: with which the machine finds it soon.
    """

    file: str
    old: str
    new: str
    what: str
    by: Literal["model", "history"] = "model"
    seed: int = 0


MUTANTS = [
    Mutant(
        "sql/jobs/claim.sql",
        "for update skip locked",
        "",
        "a claim waits for rows that another one has locked",
    ),
    Mutant(
        "sql/jobs/claim.sql",
        "order by -ready.priority, ready.run_at, ready.id",
        "order by ready.id desc",
        "order in a queue",
    ),
    Mutant(
        "sql/jobs/claim.sql",
        "order by -ready.priority, ready.run_at, ready.id",
        "order by ready.id desc",
        "order in a queue",
        "history",
    ),
    Mutant(
        "sql/jobs/claim.sql",
        "and ready.status = 'ready'",
        "and ready.status in ('ready', 'running')",
        "two claims of a job",
        "history",
    ),
    Mutant(
        "sql/jobs/claim.sql",
        "least(job.attempts, 32766) + 1",
        "greatest(job.attempts, 1)",
        "claims spend no attempt",
        "history",
    ),
    Mutant(
        "sql/jobs/claim.sql",
        "from claimant cross join unnest",
        "from (select) as claimant cross join unnest",
        "workers off the list claim",
    ),
    Mutant("sql/jobs/claim.sql", "fence = %(fence)s::integer", "fence = 1", "all claims have one fence"),
    Mutant(
        "sql/jobs/complete.sql",
        "and fence = coalesce(",
        "and fence <> -coalesce(",
        "complete without the fence's number",
        "history",
    ),
    Mutant(
        "sql/jobs/complete.sql",
        "worker_id = %(worker)s::uuid and status = 'running'",
        "%(worker)s::uuid is not null",
        "complete without the fence's worker",
        "history",
    ),
    Mutant(
        "sql/jobs/end.sql",
        "worker_id = %(worker)s::uuid and status = 'running' and fence = coalesce(",
        "status = 'running' and fence <> -coalesce(",
        "the end without a fence",
        "history",
    ),
    Mutant(
        "sql/jobs/end.sql",
        "and (cancel_requested or (%(outcomes)s",
        "and ((%(outcomes)s",
        "an asked cancel does not end a returned job",
    ),
    Mutant(
        "sql/jobs/end.sql",
        "case when cancel_requested and",
        "case when not cancel_requested and",
        "who decides that a job is cancelled",
    ),
    Mutant(
        "sql/jobs/end.sql",
        "where outcome = 'dead'",
        "where outcome = 'dead' and max_attempts > 2",
        "dead jobs are in no table",
        "history",
    ),
    Mutant(
        "sql/jobs/end.sql",
        "where outcome = 'cancelled' or (",
        "where (",
        "cancelled jobs are in no table",
        "history",
    ),
    Mutant(
        "sql/jobs/requeue.sql",
        "fence = coalesce(%(fence)s::integer,",
        "fence <> -coalesce(%(fence)s::integer,",
        "requeue without the fence's number",
        "history",
    ),
    Mutant("sql/jobs/requeue.sql", "and not cancel_requested", "", "an asked cancel is forgotten"),
    Mutant(
        "sql/jobs/requeue.sql", "job.attempts - ended.refund", "job.attempts", "returned claims are spent"
    ),
    Mutant(
        "sql/jobs/requeue.sql",
        "job.attempts - ended.refund",
        "job.attempts - 1",
        "failed attempts are not spent",
        "history",
    ),
    Mutant(
        "sql/jobs/requeue.sql",
        "null::uuid, null::timestamptz",
        "job.worker_id, null::timestamptz",
        "a waiting job names a worker",
    ),
    Mutant(
        "sql/jobs/requeue.sql",
        "when ended.delay > 0 then 'scheduled'",
        "when ended.delay > 99 then 'scheduled'",
        "a retry does not wait",
    ),
    Mutant(
        "sql/workers/expire_workers.sql",
        "where lease_until < coalesce",
        "where lease_until < interval '30 s' + coalesce",
        "leases are not waited for",
        "history",
    ),
    Mutant(
        "sql/workers/expire_workers.sql",
        "where lease_until < coalesce",
        "where lease_until < -interval '60 s' + coalesce",
        "lost workers are found late",
    ),
    Mutant(
        "sql/workers/take_over.sql",
        "for update of jobs skip locked",
        "",
        "a sweeper takes what an open transaction ends",
    ),
    Mutant(
        "sql/workers/take_over.sql",
        "status = 'running' and worker_id = any(%(workers)s::uuid[])",
        "false",
        "lost workers' jobs stay",
    ),
    Mutant(
        "sql/workers/renew.sql", "where id = %(worker)s::uuid", "where id is null", "heartbeats renew nothing"
    ),
    Mutant(
        "sql/jobs/enqueue_unique.sql",
        "%(unique_key)s::text, %(unique_until_started)s",
        "%(unique_key)s::text || clock_timestamp(), %(unique_until_started)s",
        "unique keys are not unique",
    ),
    Mutant(
        "sql/jobs/cancel.sql",
        "set cancel_requested = true",
        "set cancel_requested = false",
        "running jobs are not asked to cancel",
    ),
    Mutant("sql/jobs/run_now.sql", "and status = 'scheduled'", "", "a retry makes running jobs ready"),
    Mutant(
        "sql/limits/running.sql",
        "count(*)",
        "0 * count(*)",
        "running jobs of a limit are not counted",
        "history",
    ),
    Mutant(
        "pgqueue/store/limits/limits.py",
        "counted.learn(state.counted, server, state.first_claim)",
        "counted.learn(state.counted, server, state.first_claim + 1)",
        "running jobs are counted from behind the first of them",
        "history",
    ),
    Mutant(
        "sql/signals/wait.sql", "attempts = attempts - 1", "attempts = attempts", "a wait spends an attempt"
    ),
    Mutant("sql/signals/wait.sql", "and not cancel_requested", "", "a job that is to be cancelled waits"),
    Mutant(
        "sql/jobs/revive.sql",
        "case when not %(without_key)s::boolean then unique_key end",
        "null::text",
        "a retried job loses its key",
    ),
    Mutant(
        "sql/jobs/enqueue.sql",
        "when due.run_at > due.now then 'scheduled'",
        "when due.run_at < due.now then 'scheduled'",
        "delays are not waited for",
    ),
    Mutant(
        "sql/limits/claim.sql",
        "waiting.run_at, waiting.id\n        limit line.quota",
        "waiting.run_at, waiting.id\n        limit 99",
        "a lane starts more than its quota",
        "history",
    ),
    Mutant(
        "sql/limits/claim.sql",
        "attempts = least(job.attempts, 32766) + 1",
        "attempts = job.attempts",
        "claims from lanes spend no attempt",
    ),
    Mutant(
        "pgqueue/store/jobs/finish.py",
        "int(not one.spends)",
        "int(one.spends)",
        "refunds are given to the wrong verdicts",
    ),
    Mutant(
        "pgqueue/store/jobs/finish.py",
        "return Returned(verdict.claim) if isinstance(verdict, Waits) else verdict",
        "return verdict",
        "a job whose signal is there has no verdict",
    ),
    Mutant(
        "pgqueue/values/jobs/verdict.py",
        'if claim.attempt >= claim.max_attempts:\n        return Died(claim, seconds, "exhausted", error)\n    return Again(claim, None, error)',
        "return Again(claim, None, error)",
        "lost jobs have attempts without end",
        "history",
    ),
    Mutant(
        "pgqueue/store/limits/limits.py",
        "state.count(text, count * places)",
        "state.count(text, 0)",
        "running jobs of a key are not counted",
        "history",
    ),
    Mutant(
        "pgqueue/store/workers/upkeep.py",
        'yield Statement("workers/expire_workers", {"now": now})',
        "pass",
        "no sweeper deletes rows of lost workers",
    ),
    Mutant(
        "pgqueue/store/workers/lost.py",
        "finish(worker, [judge(one) for one in some], keep=True, now=now)",
        "finish(worker, [], keep=True, now=now)",
        "what was taken over is not ended",
    ),
]
"""Each of these breaks a promise."""


def caught(mutant: Mutant, dsn: str) -> BaseException | None:
    """What says that the mutation breaks something: a story, or else the machine; None: nothing does."""
    with statements(mutant) as catalogue:

        def make_world() -> World:
            return World(dsn, catalogue, compares=mutant.by == "model")

        try:
            tell(make_world())
            _search(make_world, mutant.seed)
        except (
            FlakyFailure
        ) as failure:  # it failed, and not in the same way when it was run again, as planners choose
            return failure.exceptions[0]
        except HypothesisException:
            raise
        except Exception as error:  # noqa: BLE001 - an assertion, or the database's refusal
            return error
    return None


def _search(make_world: Callable[[], World], number: int) -> None:
    made = make_world

    class Mutated(Life):
        make_world = staticmethod(made)

    run_state_machine_as_test(
        seed(number)(Mutated),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@contextmanager
def statements(mutant: Mutant) -> Iterator[Catalogue]:
    """The code with the mutation, for the length of a block; the catalogue to be used in it."""
    catalogue = Catalogue("pgqueue", "")
    if mutant.file.endswith(".py"):
        with _python(mutant):
            yield catalogue
        return
    name = mutant.file.removeprefix("sql/").removesuffix(".sql")
    text = catalogue[name].decode()
    catalogue._texts[name] = _replaced(mutant, text).encode()  # noqa: SLF001 - there is no other way to break it
    yield catalogue


def _replaced(mutant: Mutant, text: str) -> str:
    if text.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.file} has {text.count(mutant.old)} times, and is to have once: {mutant.old}"
        )
    return text.replace(mutant.old, mutant.new)


@contextmanager
def _python(mutant: Mutant) -> Iterator[None]:
    """Exchange the code of the functions that differ, in place: so every module that has imported one runs the other."""
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    source = _replaced(mutant, Path(str(module.__file__)).read_text(encoding="utf-8"))
    wanted = {code.co_qualname: code for code in _codes(compile(source, mutant.file, "exec"))}
    functions = [one for one in _functions(module) if one.__code__.co_qualname in wanted]
    former = [(one, one.__code__) for one in functions]
    try:
        for one in functions:
            one.__code__ = wanted[one.__code__.co_qualname]
        yield
    finally:
        for one, code in former:
            one.__code__ = code


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for one in vars(module).values():
        function = getattr(one, "__wrapped__", one)
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            yield function


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (one for one in code.co_consts if isinstance(one, CodeType))
