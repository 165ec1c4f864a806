"""Whether each promise held, by a history."""

from collections.abc import Iterable
from itertools import islice

from pgqueue.values.history import attempts, claims, effects, jobs, keys, limits, order, repeats
from pgqueue.values.history.events import Event, Violation
from pgqueue.values.history.index import History
from pgqueue.values.history.rules import DEFAULT_RULES, Rule, Rules

RULES: tuple[Rule, ...] = (
    jobs.one_record,
    jobs.ended_once,
    claims.one_holder,
    claims.nothing_from_the_superseded,
    claims.no_reclaim_inside_a_lease,
    attempts.every_claim_spends,
    attempts.dead_when_none_is_left,
    keys.one_live_job_per_key,
    limits.limits_hold,
    limits.rates_hold,
    limits.keys_are_ordered,
    claims.runs_elsewhere_soon,
    effects.effects_commit_with_the_job,
    order.in_order,
    repeats.ticks_fire_once,
    repeats.flows_are_exact,
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
