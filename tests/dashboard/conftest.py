"""What the tests of the dashboard share."""

from collections.abc import Callable
from typing import Any

import pytest
from dashboard.people import Person

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, Right, User


@pytest.fixture
def person(queue: PgQueue) -> Callable[..., Person]:
    """Makes a person with these rights, or with all."""

    def make(*rights: Right, actions: bool = True, **options: Any) -> Person:
        user = User.with_rights("ann", rights or Right)
        return Person(Dashboard(queue, login=lambda _: user, actions=actions, **options))

    return make
