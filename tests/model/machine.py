"""What can happen to a :class:`model.world.World`, in any order, as hypothesis chooses it."""

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model.jobs import ModelJob

if TYPE_CHECKING:
    from model.world import World

VERDICTS = ("complete", "complete", "fail", "die", "return", "snooze", "wait", "cancel")


class Life(RuleBasedStateMachine):
    """Jobs, workers and callers. A subclass says in which database and with which statements."""

    make_world: Any

    def __init__(self) -> None:
        """Begin with an empty queue."""
        super().__init__()
        self.world: World = type(self).make_world()

    @initialize(keys=st.lists(st.sampled_from((None, None, "k")), max_size=3), limited=st.booleans())
    def workers_and_jobs(self, keys: list[str | None], limited: bool) -> None:  # noqa: FBT001 - drawn
        self.world.register()
        self.world.register()
        for key in keys:
            self.world.enqueue(priority=0, delay=0.0, key=key, limited=limited)
            self.world.enqueue(priority=0, delay=0.0, key=None, limited=False)

    @rule(
        priority=st.sampled_from((0, 0, 5)),
        delay=st.sampled_from((0.0, 0.0, 5.0)),
        key=st.sampled_from((None, None, "k")),
        limited=st.sampled_from((False, False, True)),
    )
    def enqueue(self, priority: int, delay: float, key: str | None, limited: bool) -> None:  # noqa: FBT001 - drawn
        self.world.enqueue(priority=priority, delay=delay, key=key, limited=limited)

    @rule(seconds=st.sampled_from((1.0, 5.0, 31.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(data=st.data(), count=st.integers(1, 3))
    def claim(self, data: st.DataObject, count: int) -> None:
        self.world.claim(self.some_worker(data), count)

    @rule(data=st.data(), how=st.sampled_from(VERDICTS))
    def claim_and_finish(self, data: st.DataObject, how: str) -> None:
        before = len(self.world.claims)
        self.world.claim(self.some_worker(data), 1)
        for one in self.world.claims[before:]:
            self.world.finish(one, how)

    @precondition(lambda self: self.world.open is None)
    @rule(data=st.data(), count=st.integers(1, 2))
    def begin_to_claim(self, data: st.DataObject, count: int) -> None:
        self.world.claim(self.some_worker(data), count, hold=True)

    @precondition(lambda self: any(one.in_lane for one in self.world.jobs.values()))
    @rule(data=st.data())
    def claim_limited(self, data: st.DataObject) -> None:
        self.world.claim_limited(self.some_worker(data))

    @precondition(lambda self: self.world.claims)
    @rule(data=st.data(), how=st.sampled_from(VERDICTS))
    def finish(self, data: st.DataObject, how: str) -> None:
        held = [one for one in self.world.claims if self.world.heard(one)]
        self.world.finish(data.draw(st.sampled_from(held or self.world.claims)), how)

    @precondition(lambda self: any(not self.world.heard(one) for one in self.world.claims))
    @rule(data=st.data(), how=st.sampled_from(VERDICTS))
    def say_too_late(self, data: st.DataObject, how: str) -> None:
        late = [one for one in self.world.claims if not self.world.heard(one)]
        self.world.finish(data.draw(st.sampled_from(late)), how)

    @precondition(lambda self: self.world.open is None and self.world.claims)
    @rule(data=st.data())
    def hold_open(self, data: st.DataObject) -> None:
        self.world.hold_open(data.draw(st.sampled_from(self.world.claims)))

    @precondition(lambda self: self.world.open is not None)
    @rule(commit=st.booleans())
    def close(self, commit: bool) -> None:  # noqa: FBT001 - drawn
        self.world.close(commit=commit)

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(self.some_job(data))

    @precondition(lambda self: any(one.status in {"dead", "scheduled"} for one in self.world.jobs.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        known = [one for one in self.world.jobs.values() if one.status in {"dead", "scheduled"}]
        self.world.retry(data.draw(st.sampled_from(known)))

    @precondition(lambda self: self.world.jobs)
    @rule(data=st.data())
    def signal(self, data: st.DataObject) -> None:
        self.world.signal(self.some_job(data))

    @rule()
    def poll(self) -> None:
        self.world.poll()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule()
    def all_workers_die(self) -> None:
        self.world.pass_time(31.0)
        self.world.sweep()
        self.world.poll()
        self.world.register()

    @precondition(lambda self: self.world.leases)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.world.heartbeat(self.some_worker(data))

    @precondition(lambda self: len(self.world.leases) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.leave(data.draw(st.sampled_from(list(self.world.leases))))

    @precondition(lambda self: len(self.world.leases) < 2)
    @rule()
    def another_worker(self) -> None:
        self.world.register()

    @invariant()
    def tables_hold_what_the_model_says(self) -> None:
        self.world.compare()

    def teardown(self) -> None:
        """Have the history checked."""
        try:
            violations = self.world.judge()
            assert violations == [], "\n".join(one.sentence for one in violations)
        finally:
            self.world.end()

    def some_worker(self, data: st.DataObject) -> Any:
        """A worker, maybe one that is off the list."""
        return data.draw(st.sampled_from([*self.world.leases, *self.world.leases, *self.world.workers]))

    def some_job(self, data: st.DataObject) -> ModelJob:
        return data.draw(st.sampled_from(list(self.world.jobs.values())))
