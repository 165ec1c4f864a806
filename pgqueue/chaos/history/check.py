"""Whether each promise held, by a history."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from pgqueue.chaos.history import many_jobs, one_job
from pgqueue.chaos.history.events import Event, Violation
from pgqueue.chaos.history.index import DEFAULT_RULES, History, Rules

Rule: TypeAlias = Callable[[History, Rules], Iterator[Violation]]
"""Finds the violations of one promise."""

RULES: tuple[Rule, ...] = (
    one_job.one_record,
    one_job.ended_once,
    one_job.one_holder,
    one_job.nothing_from_the_superseded,
    one_job.no_reclaim_inside_a_lease,
    one_job.every_claim_spends,
    one_job.dead_when_none_is_left,
    many_jobs.one_live_job_per_key,
    many_jobs.limits_hold,
    many_jobs.rates_hold,
    many_jobs.keys_are_ordered,
    one_job.runs_elsewhere_soon,
    one_job.effects_commit_with_the_job,
    many_jobs.in_order,
    many_jobs.ticks_fire_once,
    many_jobs.flows_are_exact,
)
"""A function for each part of a promise, in the order of the promises."""


def check(events: Iterable[Event], rules: Rules = DEFAULT_RULES, *, most: int = 20) -> list[Violation]:
    """The violations of all promises, in the order of the promises.

    A history of 1,174,643 jobs took less than 75 s, with the read of its log (docs/reliability.md).

    Args:
        events: the history, in any order: it is sorted by time.
        rules: what it is judged by.
        most: at most how many violations of one kind are named.
    """
    history = History(events)
    return [found for rule in RULES for found in islice(rule(history, rules), most)]
