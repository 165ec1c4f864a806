"""What the tests of the dashboard share."""

from collections.abc import Callable
from typing import Any

import pytest
from dashboard.people import Person

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, Right, User, shared_standings


@pytest.fixture(autouse=True)
def each_look_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a look takes long, and its answer would be shown although the test has changed something."""
    monkeypatch.setattr(shared_standings, "LONGEST", 0.0)
    monkeypatch.setattr(shared_standings, "RECENT", 0.0)
    monkeypatch.setattr(shared_standings, "SHARE_FOR_LISTS", 0)


@pytest.fixture
def person(queue: PgQueue) -> Callable[..., Person]:
    """Makes a person with these rights, or with all."""

    def make(*rights: Right, actions: bool = True, **options: Any) -> Person:
        user = User.with_rights("ann", rights or Right)
        return Person(Dashboard(queue, login=lambda _: user, actions=actions, **options))

    return make
