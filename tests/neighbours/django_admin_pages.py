"""What the tests of the admin share: Django's database, emptied for each test, and a browser of an administrator.

A test module imports this module and assigns the fixtures to names of its own: one that is imported by its name would run
twice. It has a fixture ``shared``, the database that its tests share.
"""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from neighbours.django_backend_database import emptied


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
