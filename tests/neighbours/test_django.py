"""Enqueuing in a Django project: on Django's connection, so in its transaction; and the queue made from the settings."""

import asyncio
import subprocess
import sys
import unittest
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import msgspec
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, override_settings
from neighbours.conftest import point_django_at
from neighbours.project.shop.models import Order
from neighbours.project.shop.tasks import aconfirm, confirm
from psycopg.conninfo import conninfo_to_dict

import pgqueue.django
from pgqueue import chain, group
from pgqueue.app.middleware import Middleware
from pgqueue.app.task import Call
from pgqueue.django import DjangoQueue, queue
from pgqueue.django.djangoqueue import DjangoDatabase
from pgqueue.django.models import DeadJob, Job
from pgqueue.django.recycling import Recycling
from pgqueue.errors import ConfigurationError, ConnectionFailed, InvalidOption, SchemaMissing
from pgqueue.store import columns
from pgqueue.values.jobs.job import JobState, NewJob
from pgqueue.values.payloads.codec import Codec


def _committed(dsn: str) -> list[int]:
    """The ids of the jobs that everybody can see."""
    with psycopg.connect(dsn) as other:
        return [row[0] for row in other.execute("select id from pgqueue.jobs order by id").fetchall()]


def test_a_job_commits_with_the_atomic_block_around_it(django_dsn: str) -> None:
    with transaction.atomic():
        order = Order.objects.create()
        handle = confirm.enqueue(order.pk)
        assert _committed(django_dsn) == []

    assert _committed(django_dsn) == [handle.id]
    assert Order.objects.count() == 1


def test_a_rollback_leaves_neither_row_nor_job(django_dsn: str) -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        confirm.enqueue(Order.objects.create().pk)
        _ = 1 / 0

    assert _committed(django_dsn) == []
    assert not Order.objects.exists()


def _enqueue_flow_and_fail() -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        chain(confirm.call(Order.objects.create().pk), group([confirm.call(1)])).enqueue()
        _ = 1 / 0


async def test_a_flow_commits_with_the_atomic_block_around_it(django_dsn: str) -> None:
    flow = chain(confirm.call(1), group([confirm.call(2), confirm.call(3)]))

    def enqueue() -> list[int]:
        with transaction.atomic():
            order = Order.objects.create()
            handle = chain(confirm.call(order.pk), flow).enqueue()
            assert _committed(django_dsn) == []
        return [job.id for job in handle.jobs]

    await sync_to_async(_enqueue_flow_and_fail)()
    assert _committed(django_dsn) == []
    ids = await sync_to_async(enqueue)()
    assert _committed(django_dsn) == ids
    ids += [job.id for job in (await flow.aenqueue()).jobs]
    assert _committed(django_dsn) == ids


def test_a_flow_joins_the_block_of_the_connection_that_is_given(django_dsn: str) -> None:
    with transaction.atomic():
        handle = chain(confirm.call(1), confirm.call(2)).enqueue(connection=connections["default"])
        assert _committed(django_dsn) == []
    assert _committed(django_dsn) == [job.id for job in handle.jobs]


async def test_a_signal_is_sent_with_the_atomic_block_around_it(django_dsn: str) -> None:
    def send_and_fail() -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            assert queue.signal("order:1", "paid")
            _ = 1 / 0

    await sync_to_async(send_and_fail)()
    assert await queue.asignal("order:1", "paid", 30)
    with psycopg.connect(django_dsn) as other:
        assert other.execute("select payload from pgqueue.signals").fetchall() == [(30,)]


def test_a_savepoint_that_is_rolled_back_takes_its_job_with_it(django_dsn: str) -> None:
    with transaction.atomic():
        kept = confirm.enqueue(1)
        with suppress(ZeroDivisionError), transaction.atomic():
            confirm.enqueue(2)
            _ = 1 / 0

    assert _committed(django_dsn) == [kept.id]


def test_outside_of_a_transaction_a_job_is_committed_at_once(django_dsn: str) -> None:
    handle = confirm.enqueue(1)

    assert _committed(django_dsn) == [handle.id]


def test_many_jobs_join_the_block_and_leave_it_usable(django_dsn: str) -> None:
    with transaction.atomic():
        queue.enqueue_many(confirm.call(number) for number in range(5))
        assert len(queue.insight.search().jobs) == 5
        assert _committed(django_dsn) == []
        transaction.set_rollback(True)

    assert _committed(django_dsn) == []


def test_many_jobs_may_be_drawn_from_a_query(django_dsn: str) -> None:
    Order.objects.bulk_create(Order() for _ in range(2500))

    with transaction.atomic():
        handles = queue.enqueue_many(
            confirm.call(order.pk) for order in Order.objects.iterator(chunk_size=100)
        )

    assert len(handles) == len(_committed(django_dsn)) == 2500


@pytest.mark.usefixtures("django_dsn")
def test_looking_and_steering_see_the_uncommitted_job() -> None:
    with transaction.atomic():
        handle = confirm.enqueue(1)
        assert handle.status() == JobState.READY
        assert handle.cancel() == JobState.CANCELLED
        transaction.set_rollback(True)


def test_a_connection_of_the_users_own_is_joined_in_place_of_djangos(django_dsn: str) -> None:
    with psycopg.connect(django_dsn) as other:
        handle = confirm.using(connection=other).enqueue(1)
        assert queue.insight.search().jobs == ()

    assert _committed(django_dsn) == [handle.id]


async def test_the_awaited_way_is_part_of_what_the_orms_thread_has_begun(django_dsn: str) -> None:
    await sync_to_async(transaction.set_autocommit)(autocommit=False)
    one = await aconfirm.aenqueue(1)
    many = await queue.aenqueue_many([aconfirm.call(2), aconfirm.call(3)])
    assert [await handle.astatus() for handle in (one, *many)] == [JobState.READY] * 3
    assert not await queue.aretry(one.id)
    assert _committed(django_dsn) == []

    await sync_to_async(transaction.rollback)()
    await sync_to_async(transaction.set_autocommit)(autocommit=True)

    assert (await queue.insight.asearch()).jobs == ()


async def test_many_jobs_may_be_drawn_from_a_query_in_a_coroutine_as_well(django_dsn: str) -> None:
    await Order.objects.abulk_create([Order() for _ in range(3)])

    def calls() -> Iterator[Call[str]]:
        for order in Order.objects.all():
            yield confirm.call(order.pk)

    handles = await queue.aenqueue_many(calls())

    assert _committed(django_dsn) == [handle.id for handle in handles]
    assert len(handles) == 3


async def test_what_sees_an_awaited_enqueue_may_use_the_orm(django_dsn: str) -> None:
    class Counts(Middleware):
        def enqueuing(self, job: NewJob) -> NewJob:
            return msgspec.structs.replace(job, meta=b'{"orders": %d}' % Order.objects.count())

    own = DjangoQueue(middleware=[Counts()])
    task = own.task(name="counts")(print)
    handles = [await task.aenqueue(), *await own.aenqueue_many([task.call()])]

    assert _committed(django_dsn) == [handle.id for handle in handles]
    own.close()


async def test_the_awaited_way_commits_at_once_outside_of_a_transaction(django_dsn: str) -> None:
    one = await aconfirm.aenqueue(1)
    many = await queue.aenqueue_many([aconfirm.call(2), aconfirm.call(3)])

    assert _committed(django_dsn) == [handle.id for handle in (one, *many)]


@pytest.mark.usefixtures("django_dsn")
async def test_the_blocking_way_in_a_coroutine_is_refused_as_the_orm_is() -> None:
    with pytest.raises(SynchronousOnlyOperation, match=r"await task\.aenqueue"):
        confirm.enqueue(1)


def test_within_a_test_case_a_job_is_seen_and_gone_afterwards(django_dsn: str) -> None:
    class Case(TestCase):
        def _enqueued(self) -> int:
            with transaction.atomic():
                return confirm.enqueue(1).id

        def test_enqueues(self) -> None:
            job_id = self._enqueued()
            assert [job.id for job in queue.insight.search().jobs] == [job_id]

        def test_enqueues_again(self) -> None:
            job_id = self._enqueued()
            assert [job.id for job in queue.insight.search().jobs] == [job_id]

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(outcome)

    assert outcome.testsRun == 2
    assert [*outcome.errors, *outcome.failures] == []
    assert _committed(django_dsn) == []


def test_a_broken_transaction_refuses_a_job_as_it_does_a_query(django_dsn: str) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            confirm.enqueue(1)

    assert _committed(django_dsn) == []


def test_a_statement_that_fails_does_so_in_djangos_words_and_django_looks_at_its_connection(
    django_dsn: str,
) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (pid,) = cursor.fetchone()
    with psycopg.connect(django_dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [pid])

    with pytest.raises(OperationalError):
        confirm.enqueue(1)

    assert connections["default"].errors_occurred
    connections["default"].close_if_unusable_or_obsolete()
    assert confirm.enqueue(1).id in _committed(django_dsn)


def test_a_stale_connection_is_noticed_first_where_django_checks_the_health_of_connections(
    django_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": None}.items():
        monkeypatch.setitem(connections["default"].settings_dict, name, value)
    connections["default"].close()
    confirm.enqueue(1)
    pid = connections["default"].connection.info.backend_pid
    connections["default"].close_if_unusable_or_obsolete()  # as at the end of a request
    with psycopg.connect(django_dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [pid])

    confirm.enqueue(2)

    assert len(_committed(django_dsn)) == 2


@pytest.mark.usefixtures("bare_dsn")
def test_without_the_schema_an_enqueue_says_what_is_missing() -> None:
    with pytest.raises(SchemaMissing, match="migrate"):
        confirm.enqueue(1)


def test_a_server_that_is_not_there_is_a_failed_connection(django_dsn: str) -> None:
    point_django_at("dbname=shop host=127.0.0.1 port=1 user=nobody")
    with pytest.raises(ConnectionFailed, match=r"DATABASES\['default'\]"):
        confirm.enqueue(1)
    point_django_at(django_dsn)


def test_the_queue_is_made_once_and_knows_the_tasks_of_every_app() -> None:
    assert pgqueue.django.queue is queue
    assert isinstance(queue, DjangoQueue)
    assert queue.tasks["neighbours.project.shop.tasks.confirm"] is confirm


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="quue"):
        _ = pgqueue.django.quue  # type: ignore[attr-defined]


@override_settings(
    PGQUEUE={
        "DATABASE": "other",
        "SCHEMA": "jobs",
        "QUEUES": ["mail"],
        "HISTORY": timedelta(days=1),
        "MAX_PAYLOAD": 10,
        "REDACT": ["pin"],
        "POOL_SIZE": 2,
        "BEHIND_POOLER": True,
        "DIRECT_DSN": "dbname=direct",
    }
)
def test_the_settings_are_the_options_of_a_queue_in_capitals() -> None:
    made = DjangoQueue.from_settings()

    assert isinstance(made.database, DjangoDatabase)
    assert (made.database.alias, made.database.catalogue.schema) == ("other", "jobs")
    assert made.database.listen_dsn == "dbname=direct"
    assert made.database.behind_pooler
    assert (made.queues, made.history, made.max_payload) == (frozenset({"mail"}), timedelta(days=1), 10)
    assert made.redaction.value({"pin": 1, "password": 2}) == {"pin": "•••", "password": 2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"SHEMA": "jobs"}, "did you mean 'SCHEMA'"),
        ({"schema": "jobs"}, "did you mean 'SCHEMA'"),
        ({"DSN": "dbname=x"}, "DATABASES"),
        ({"XYZ": 1}, "MAX_PAYLOAD"),
        ({"HISTORY": 7}, "timedelta"),
        ({"POOL_SIZE": 0}, "pool_size=0"),
        ({"POOL_SIZE": True}, "POOL_SIZE"),
        ({"QUEUES": "mail"}, "use a list of names"),
        ({"MIDDLEWARE": "a.B"}, "use a list of classes' dotted paths"),
        ({"MIDDLEWARE": ["a.B"]}, "'a.B' cannot be imported"),
        ({"MIDDLEWARE": [int]}, "int is a class; give an object"),
        ({"REDACT": "pin"}, "use a list of regular expressions"),
        ({"REDACT": ["("]}, "is no regular expression"),
        ({"CODEC": 7}, "use the dotted path of a class"),
        ({"CODEC": "a.B"}, r"PGQUEUE\['CODEC'\]: 'a.B' cannot be imported"),
        ({"CODEC": "builtins.dict"}, r"it is no pgqueue\.Codec"),
        ({"HEALTH_MIN_WORKERS": -1}, "from zero"),
        ({"HEALTH_MAX_WAIT": timedelta(0)}, "above zero"),
        (["SCHEMA"], "use a dict"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_with_a_remedy(given: object, words: str) -> None:
    with override_settings(PGQUEUE=given), pytest.raises((ConfigurationError, InvalidOption), match=words):
        DjangoQueue.from_settings()


def test_middleware_of_the_settings_is_within_djangos_own() -> None:
    with override_settings(PGQUEUE={"MIDDLEWARE": ["pgqueue.app.middleware.Middleware", Middleware()]}):
        kinds = [type(one) for one in DjangoQueue.from_settings().middleware]

    assert kinds == [Recycling, Middleware, Middleware]


@pytest.mark.parametrize("given", ["pgqueue.values.payloads.codec.Codec", Codec()], ids=["path", "object"])
def test_the_codec_of_the_settings_is_the_queues(given: object) -> None:
    with override_settings(PGQUEUE={"CODEC": given}):
        assert type(DjangoQueue.from_settings().codec) is Codec
    with override_settings(PGQUEUE={"CODEC": None}):
        assert DjangoQueue.from_settings().codec is None


def test_the_workers_dsn_is_what_django_connects_with(django_dsn: str) -> None:
    where = conninfo_to_dict(queue.database.dsn)

    assert where["dbname"] == conninfo_to_dict(django_dsn)["dbname"]
    assert where["client_encoding"] == "UTF8"
    assert "cursor_factory" not in where
    with psycopg.connect(queue.database.dsn) as opened:
        assert opened.info.dbname == connections["default"].settings_dict["NAME"]


@pytest.mark.usefixtures("django_dsn")
def test_options_of_libpq_go_along_and_those_of_django_and_psycopg_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {
        "sslmode": "prefer",
        "prepare_threshold": 5,
        "server_side_binding": True,
        "pool": {"max_size": 2},
        "isolation_level": 3,
        "options": "-c statement_timeout=1234",
        "assume_role": "pg_read_all_data",
    }
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", options)

    where = conninfo_to_dict(queue.database.dsn)

    assert where["sslmode"] == "prefer"
    assert not {"prepare_threshold", "pool", "isolation_level", "assume_role", "context"} & set(where)
    with psycopg.connect(queue.database.dsn) as opened:
        row = opened.execute("select current_role, current_setting('statement_timeout')").fetchone()
    assert row == ("pg_read_all_data", "1234ms")


def test_a_service_of_libpq_takes_the_place_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"service": "shop"})
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", "")

    assert conninfo_to_dict(queue.database.dsn)["service"] == "shop"


def test_a_password_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "PASSWORD", r"a b'c\d+e://f")

    assert conninfo_to_dict(queue.database.dsn)["password"] == r"a b'c\d+e://f"  # noqa: S105 - it guards nothing


@pytest.mark.parametrize(("alias", "words"), [("other", "sqlite"), ("nowhere", "nowhere")])
def test_a_database_that_is_no_postgresql_has_no_dsn(alias: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _ = DjangoDatabase(alias).dsn


def test_another_schema_stays_on_djangos_connection_and_another_dsn_does_not() -> None:
    database = DjangoDatabase("default", pool_size=3)

    other = database.but(schema="jobs", behind_pooler=True, direct_dsn="dbname=direct")
    assert isinstance(other, DjangoDatabase)
    assert (other.alias, other.catalogue.schema, other.behind_pooler) == ("default", "jobs", True)
    assert other.listen_dsn == "dbname=direct"
    assert not isinstance(database.but(dsn="dbname=elsewhere"), DjangoDatabase)
    assert database.but(dsn="dbname=elsewhere").dsn == "dbname=elsewhere"


def test_importing_the_package_loads_no_database_driver_of_django() -> None:
    program = "import sys, pgqueue.django; sys.exit('django.db' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603 - our own words


async def test_a_take_is_on_a_connection_of_its_own(django_dsn: str) -> None:
    handle = await confirm.aenqueue(1)

    async with asyncio.timeout(10), queue.atake(5, timeout=5) as jobs:
        assert [job.id for job in jobs] == [handle.id]

    assert _committed(django_dsn) == []


def test_the_models_have_every_column_of_their_tables() -> None:
    for model, described in ((Job, columns.ALL_JOBS), (DeadJob, columns.DEAD)):
        fields = {field.name for field in model._meta.get_fields()}  # noqa: SLF001 - Django's own name for it
        assert fields == {column.name for column in described} - {
            *(columns.ENDED_IN.name, columns.FLAGS.name),
            *(column.name for column in columns.LIMITED),
        }
