"""What the tests of the admin share: Django's database, emptied for each test, and a browser of an administrator.

A test module imports this module and assigns the fixtures to names of its own: one that is imported by its name would run
twice. The fixture ``shared`` is the database that the tests of a module share.
"""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from neighbours.django_backend_database import database, emptied
from pytest_postgresql.executors import NoopExecutor


@pytest.fixture(scope="module")
def a_shared_database(
    django_server: NoopExecutor, request: pytest.FixtureRequest
) -> Iterator[dict[str, str]]:
    with database(django_server, f"pgqueue_{request.module.__name__.rpartition('.')[2]}") as where:
        yield where


@pytest.fixture(autouse=True)
def an_empty_database(shared: dict[str, str]) -> Iterator[None]:
    """The shared database without jobs, orders and users."""
    with emptied(shared):
        User.objects.all().delete()
        yield


@pytest.fixture
def a_client() -> Client:
    """A browser in which an administrator has logged in."""
    found = Client()
    found.force_login(User.objects.create_superuser("root"))
    return found
