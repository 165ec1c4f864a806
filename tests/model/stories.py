"""Short stories about jobs, each of one guard of the promises. They catch in milliseconds what a search finds in seconds."""

from collections.abc import Callable
from typing import Any

from model.world import World

ALL = ("complete", "fail", "die", "return", "snooze", "wait", "cancel")


class Told:
    """A world that is compared with the model after each step."""

    def __init__(self, world: World) -> None:
        """Two workers, and nothing to do."""
        self.world = world
        self.register()
        self.register()
        self.a, self.b = world.workers

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A step of the world."""
        step = getattr(self.world, name)

        def told(*args: Any, **options: Any) -> None:
            step(*args, **options)
            self.world.compare()

        return told

    def add(
        self, *, key: str | None = None, delay: float = 0.0, priority: int = 0, limited: bool = False
    ) -> Any:
        """Add a job; it."""
        self.enqueue(priority=priority, delay=delay, key=key, limited=limited)
        return list(self.world.jobs.values())[-1]

    def run(self, worker: Any, *how: str) -> None:
        """Claim a job for each verdict, and send that."""
        for one in how:
            self.claim(worker, 1)
            self.finish(self.world.claims[-1], one)
            self.pass_time(5.0)
            self.poll()


def jobs_run_in_order(told: Told) -> None:
    for priority in (0, 5, 0, 5):
        told.add(priority=priority)
    told.claim(told.a, 1)
    told.claim(told.b, 2)
    told.claim(told.a, 3)
    for one in list(told.world.claims):
        told.finish(one, "complete")


def a_superseded_attempt_says_everything(told: Told) -> None:
    told.add()
    told.claim(told.a, 1)
    told.pass_time(20)
    told.sweep()
    told.heartbeat(told.b)
    told.pass_time(11)
    told.sweep()
    told.claim(told.b, 1)
    late, held = told.world.claims[0], told.world.claims[-1]
    for how in ALL:
        told.finish(late, how)
    told.finish(held, "complete")


def a_worker_says_everything_again(told: Told) -> None:
    told.add()
    told.claim(told.a, 1)
    told.finish(told.world.claims[0], "return")
    told.claim(told.a, 1)
    for how in ALL:
        told.finish(told.world.claims[0], how)
    told.finish(told.world.claims[-1], "complete")


def one_late_word(how: str) -> Callable[[Told], None]:
    def story(told: Told) -> None:
        told.add()
        told.claim(told.a, 1)
        told.finish(told.world.claims[0], "return")
        told.claim(told.a, 1)
        told.finish(told.world.claims[0], how)

    return story


def attempts_are_spent(told: Told) -> None:
    job = told.add()
    told.run(told.a, "return", "snooze", "fail", "fail")
    told.retry(job)
    told.run(told.a, "fail", "die")
    told.retry(job)
    told.run(told.a, "complete")


def workers_die_one_after_the_other(told: Told) -> None:
    told.add()
    for worker in (told.a, told.b):
        told.claim(worker, 1)
        told.pass_time(25)
        told.heartbeat(told.b)
        told.pass_time(10)
        told.sweep()
    told.pass_time(31)
    told.sweep()
    told.register()
    told.claim(told.world.workers[-1], 1)


def callers_cancel(told: Told) -> None:
    for how in (*ALL, "lose"):
        job = told.add()
        told.claim(told.a, 1)
        told.cancel(job)
        if how == "lose":
            told.pass_time(31)
            told.sweep()
        else:
            told.finish(told.world.claims[-1], how)
    told.cancel(told.add())
    told.cancel(told.add(delay=5))
    told.cancel(told.add(limited=True))


def jobs_wait_for_signals(told: Told) -> None:
    job = told.add()
    told.run(told.a, "wait")
    told.signal(job)
    told.run(told.a, "wait", "snooze", "complete")
    told.add()
    told.run(told.a, "wait")
    told.cancel(list(told.world.jobs.values())[-1])


def keys_are_unique(told: Told) -> None:
    first = told.add(key="k")
    told.add(key="k")
    told.run(told.a, "die")
    told.add(key="k")
    told.retry(first)
    told.claim(told.a, 1)
    told.add(key="k")
    told.finish(told.world.claims[-1], "complete")
    told.retry(first)
    told.add(key="k")


def one_of_a_lane_runs(told: Told) -> None:
    for _ in range(3):
        told.add(limited=True)
    told.claim_limited(told.a)
    told.claim_limited(told.b)
    told.finish(told.world.claims[-1], "fail")
    told.claim_limited(told.b)
    told.finish(told.world.claims[-1], "return")
    told.pass_time(5)
    told.poll()
    for _ in range(3):
        told.claim_limited(told.a)
        told.finish(told.world.claims[-1], "complete")


def a_claim_is_open(told: Told) -> None:
    told.add()
    told.add()
    told.claim(told.a, 1, hold=True)
    told.claim(told.b, 2)
    told.close(commit=False)
    told.claim(told.b, 2)


def a_completion_is_open(told: Told) -> None:
    for commit in (True, False):
        told.add()
        told.claim(told.a, 1)
        told.hold_open(told.world.claims[-1])
        told.pass_time(31)
        told.sweep()
        told.close(commit=commit)
        told.sweep()
        told.register()
        told.a = told.world.workers[-1]
        told.claim(told.a, 1)


def jobs_wait_for_their_time(told: Told) -> None:
    told.add(delay=5)
    job = told.add(delay=9)
    told.poll()
    told.pass_time(5)
    told.poll()
    told.claim(told.a, 2)
    told.retry(told.world.jobs[told.world.claims[0].id])
    told.retry(job)
    told.claim(told.a, 2)


def workers_leave(told: Told) -> None:
    told.add()
    told.claim(told.a, 1)
    told.leave(told.a)
    told.claim(told.a, 1)
    told.heartbeat(told.a)
    told.claim(told.b, 1)


STORIES: tuple[Callable[[Told], None], ...] = (
    jobs_run_in_order,
    a_superseded_attempt_says_everything,
    a_worker_says_everything_again,
    *map(one_late_word, ALL),
    attempts_are_spent,
    workers_die_one_after_the_other,
    callers_cancel,
    jobs_wait_for_signals,
    keys_are_unique,
    one_of_a_lane_runs,
    a_claim_is_open,
    a_completion_is_open,
    jobs_wait_for_their_time,
    workers_leave,
)


def tell(world: World, stories: tuple[Callable[[Told], None], ...] = STORIES) -> None:
    """Tell stories, each in an empty database; fail where one goes otherwise, or its history breaks a promise."""
    try:
        for story in stories:
            world.begin()
            story(Told(world))
            violations = world.judge()
            assert violations == [], "\n".join(one.sentence for one in violations)
    finally:
        world.end()
