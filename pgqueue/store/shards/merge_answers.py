"""How the answers of several shards to one look become one answer."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.store.jobs.known_tasks import KnownTask, NamedJob
from pgqueue.values.insight.now import (
    DeadTask,
    DeadTasks,
    DuePage,
    ErrorGroup,
    Errors,
    KeyUse,
    Running,
    SearchPage,
)
from pgqueue.values.insight.runs import Run
from pgqueue.values.jobs.job import QueueCount
from pgqueue.values.queues.settings import NO_SETTINGS
from pgqueue.values.queues.standing import WAITING, QueueStanding

DIGITS = re.compile(r"\d+")
Merge = Callable[[Sequence[Any], Mapping[str, Any]], Any]


def _search(answers: Sequence[SearchPage], arguments: Mapping[str, Any]) -> SearchPage:
    if arguments["before"] is not None:
        raise InvalidOption(
            "before: ids of several shards are in no order; page through one shard, queue.shard(n)"
        )
    # Ids of several shards are in no order, so the time of the enqueue decides.
    found = sorted((job for one in answers for job in one.jobs), key=lambda job: job.created_at, reverse=True)
    looked_to = min((one.looked_to for one in answers if one.looked_to is not None), default=None)
    return SearchPage(tuple(found[: arguments["limit"]]), looked_to)


def _due(answers: Sequence[DuePage], arguments: Mapping[str, Any]) -> DuePage:
    if arguments["after"] is not None:
        raise InvalidOption(
            "after: ids of several shards are in no order; page through one shard, queue.shard(n)"
        )
    found = sorted((job for one in answers for job in one.jobs), key=lambda job: job.run_at)
    looked_to = min((one.looked_to for one in answers if one.looked_to is not None), default=None)
    return DuePage(tuple(found[: arguments["limit"]]), looked_to)


def _details(answers: Sequence[Mapping[int, Any]], _: Mapping[str, Any]) -> dict[int, Any]:
    return {job_id: detail for one in answers for job_id, detail in one.items()}


def _counts(
    answers: Sequence[tuple[list[QueueCount], list[str]]], _: Mapping[str, Any]
) -> tuple[list[QueueCount], list[str]]:
    ordered = sorted((one for counts, _ in answers for one in counts), key=lambda one: (one.queue, one.state))
    grouped = [[*same] for _, same in groupby(ordered, key=lambda one: (one.queue, one.state))]
    return [_count(same) for same in grouped], sorted({name for _, paused in answers for name in paused})


def _count(same: list[QueueCount]) -> QueueCount:
    return msgspec.structs.replace(same[0], count=sum(one.count for one in same), **_unknown(same))


def _unknown(same: Sequence[QueueCount] | Sequence[QueueStanding]) -> dict[str, Any]:
    return {
        "unknown": sum(one.unknown for one in same),
        "unknown_tasks": tuple(sorted({name for one in same for name in one.unknown_tasks})),
        "unknown_since": min(
            (one.unknown_since for one in same if one.unknown_since is not None), default=None
        ),
    }


def _standings(answers: Sequence[Sequence[QueueStanding]], _: Mapping[str, Any]) -> list[QueueStanding]:
    ordered = sorted((one for found in answers for one in found), key=lambda one: one.queue)
    return [_merge_standings([*same]) for _, same in groupby(ordered, key=lambda one: one.queue)]


def _merge_standings(same: list[QueueStanding]) -> QueueStanding:
    # A queue that is paused, closed or has settings on one shard only is shown so: its jobs there wait.
    paused = next((one for one in same if one.paused_at is not None), same[0])
    closed = next((one for one in same if one.closed_at is not None), same[0])
    return QueueStanding(
        queue=same[0].queue,
        paused_at=paused.paused_at,
        paused_by=paused.paused_by,
        paused_why=paused.paused_why,
        closed_at=closed.closed_at,
        closed_by=closed.closed_by,
        closed_why=closed.closed_why,
        settings=next((one.settings for one in same if one.settings != NO_SETTINGS), NO_SETTINGS),
        **{name: sum(getattr(one, name) for one in same) for name in (*WAITING, "dead")},
        rate=sum(one.rate for one in same),
        oldest_ready=max((one.oldest_ready for one in same if one.oldest_ready is not None), default=None),
        estimated=tuple(sorted({state for one in same for state in one.estimated})),
        **_unknown(same),
    )


def _merge_running(answers: Sequence[Running], arguments: Mapping[str, Any]) -> Running:
    jobs = sorted((job for one in answers for job in one.jobs), key=lambda job: -job.seconds)
    return Running(tuple(jobs[: arguments["limit"]]), all(one.complete for one in answers))


def _errors(answers: Sequence[Errors], arguments: Mapping[str, Any]) -> Errors:
    same: dict[tuple[object, ...], list[ErrorGroup]] = {}
    for one in (group for answer in answers for group in answer.groups):
        # Messages that differ in digits only are of one group.
        said = None if one.message is None else DIGITS.sub("", one.message)
        same.setdefault((one.task, one.type, one.reason, said), []).append(one)
    groups = sorted(map(_error_group, same.values()), key=lambda group: -group.jobs)
    return Errors(
        tuple(groups[: arguments["limit"]]),
        sum(one.jobs for one in answers),
        all(one.complete for one in answers),
    )


def _error_group(same: list[ErrorGroup]) -> ErrorGroup:
    last = max(same, key=lambda group: group.last_at)
    return msgspec.structs.replace(
        last,
        jobs=sum(one.jobs for one in same),
        queues=tuple(sorted({name for one in same for name in one.queues})),
        first_at=min(one.first_at for one in same),
    )


def _dead_by_task(answers: Sequence[DeadTasks], arguments: Mapping[str, Any]) -> DeadTasks:
    counts = Counter[tuple[str, str]]()
    for one in chain(*(answer.tasks for answer in answers)):
        counts[one.queue, one.task] += one.jobs
    ordered = [DeadTask(*name, jobs) for name, jobs in counts.most_common()]
    named, rest = ordered[: arguments["limit"]], ordered[arguments["limit"] :]
    others = sum(one.jobs for one in rest) + sum(one.others for one in answers)
    return DeadTasks(tuple(named), others, all(one.complete for one in answers))


def _keys_used(answers: Sequence[Sequence[KeyUse]], _: Mapping[str, Any]) -> list[KeyUse]:
    counts = Counter[KeyUse]()
    for one in chain(*answers):
        counts[msgspec.structs.replace(one, rows=0)] += one.rows
    ordered = sorted(counts, key=lambda one: (one.table, one.ring, one.key))
    return [msgspec.structs.replace(one, rows=counts[one]) for one in ordered]


def _all(answers: Sequence[Sequence[Any]], _: Mapping[str, Any]) -> list[Any]:
    # The rows of all shards: a process has a worker on each.
    return [one for answer in answers for one in answer]


def _runs(answers: Sequence[Sequence[Run]], arguments: Mapping[str, Any]) -> list[Run]:
    # A DataFrame is written to one shard.
    found = sorted(_all(answers, arguments), key=lambda one: one.last_at, reverse=True)
    return found[: arguments["limit"]]


def _any(answers: Sequence[set[str]], _: Mapping[str, Any]) -> set[str]:
    return {one for answer in answers for one in answer}


def _named(answers: Sequence[NamedJob], _: Mapping[str, Any]) -> NamedJob:
    # Workers serve every shard; one that was added later may not have been told yet.
    return next((one for one in answers if one.task.queue is not None), answers[0])


def _known(answers: Sequence[Sequence[KnownTask]], _: Mapping[str, Any]) -> list[KnownTask]:
    return [*{one.name: one for one in chain(*answers)}.values()]


MERGED: Mapping[str, Merge] = {
    "searching.search": _search,
    "searching.due": _due,
    "searching.details": _details,
    "control.counts": _counts,
    "queues.queue_standings": _standings,
    "insight.running": _merge_running,
    "insight.errors": _errors,
    "insight.dead_by_task": _dead_by_task,
    "insight.keys_used": _keys_used,
    "runs.runs": _runs,
    "workers.listed": _all,
    "control.worker_problems": _all,
    "control.worker_queues": _any,
    "known_tasks.find": _named,
    "known_tasks.listed": _known,
}
"""Plans that are asked of all shards, and how their answers become one."""
