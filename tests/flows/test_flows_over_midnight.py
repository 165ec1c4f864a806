"""A flow whose jobs end on different days: the history's partition changes in its midst, and some days have none."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flows.world import World, a_world

from pgqueue import Context, chain, group
from pgqueue.errors import FlowRefused
from pgqueue.store.workers import upkeep

world = a_world
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def test_a_flow_goes_on_over_midnight_and_days_that_are_not_prepared_and_is_retried_whole(
    world: World,
) -> None:
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + 2 * DAY
    handle = chain(
        world.note.using(delay=midnight - now - SECOND).call("first"),
        group([world.note.call("second"), world.note.using(delay=4 * DAY).call("third")]),
        world.note.using(delay=60 * DAY).call("fourth"),  # no partition is made as early
    ).enqueue()
    later = (midnight, midnight + SECOND, midnight + 4 * DAY, midnight + 61 * DAY)
    for at in later:
        world.run(now=at)
    assert world.noted == ["first", "second", "third", "fourth"]
    assert world.states == ["succeeded"]
    ((days,),) = world.rows("select count(distinct tableoid) from pgqueue.job_history")
    assert days >= 3
    assert handle.retry(what="all") == 4
    for at in later:
        world.run(now=at)
    assert world.noted[4:] == ["first", "second", "third", "fourth"]
    assert world.states == ["succeeded"]


def test_results_are_read_when_the_history_of_their_day_is_dropped(world: World) -> None:
    seen = list[Any]()

    @world.queue.task(name="look")
    def look(ctx: Context) -> None:
        seen.append(ctx.results.previous)

    chain(world.note.call("first"), look.using(delay=30 * DAY).call()).enqueue()
    world.run()
    drop_history(world)
    world.run(now=datetime.now(UTC) + 31 * DAY)
    assert seen == ["first"]
    assert world.states == ["succeeded"]


def test_a_retry_of_what_the_history_does_not_know_any_more_is_refused_whole(world: World) -> None:
    handle = group([world.note.call(1), world.note.call("fail")]).enqueue()
    world.run()
    drop_history(world)
    with pytest.raises(FlowRefused, match="there is no record of its job any more"):
        handle.retry(what="all")
    assert (world.count("jobs"), world.count("dead_jobs")) == (0, 1)
    assert handle.retry(what="failed") == 1


def drop_history(world: World) -> None:
    world.queue.database.run(upkeep.drop_history(now=datetime.now(UTC) + 20 * DAY))
    assert world.count("job_history") == 0
