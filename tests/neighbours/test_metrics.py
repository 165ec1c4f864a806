"""Metrics as Prometheus reads them: of a worker, of the whole queue; the dashboard and the rules that the docs offer."""

import asyncio
import json
import random
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from cli.commands import pgqueue
from looking import ask, until
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from promises.processes import listed
from running import Running
from worker.helping import ended

from pgqueue import Dead, Limit, PgQueue
from pgqueue.dashboard.pages import PAGES
from pgqueue.errors import ConfigurationError, ConnectionFailed
from pgqueue.store.insight import insight
from pgqueue.store.limits import lanes
from pgqueue.telemetry import prometheus
from pgqueue.telemetry.queue_metrics import DEAD_TASKS, QueueMetrics
from pgqueue.telemetry.worker_metrics import LONGEST, MOST, OTHER, SECONDS, Histogram, JobMetrics
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Returned, Succeeded
from pgqueue.values.workers.health import Vitals
from pgqueue.worker.worker import Worker

METRICS = Path(__file__).parents[2] / "docs/metrics"
LOOPBACK = "127.0.0.1"
HOSTILE = 'a"}1\\n\\evil{x="é'
PROMTOOL = shutil.which("promtool") or "promtool"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(text: str) -> dict[tuple[str, ...], float]:
    """Each sample by its name and its labels' values, in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(text: str) -> set[str]:
    """The names under which samples are, and those of families without any now."""
    families = list(text_string_to_metric_families(text))
    found = {sample.name for family in families for sample in family.samples}
    return found | {f"{one.name}_total" if one.type == "counter" else one.name for one in families}


@contextmanager
def served(queue: PgQueue, worker: Worker) -> Iterator[int]:
    with prometheus.serving_worker(queue, worker.vitals, host=LOOPBACK, port=0) as endpoint:
        yield endpoint.port


@pytest.fixture
def busy(queue: PgQueue) -> PgQueue:
    """A queue with tasks that succeed, fail and die, and names that would break a format without escapes."""

    @queue.task(queue=HOSTILE, name=HOSTILE, limit=Limit(3, name="of-us"))
    async def succeed() -> None: ...

    @queue.task(name="die")
    async def die() -> None:
        raise Dead("gone")

    return queue


async def test_a_worker_tells_prometheus_what_it_did_and_promtool_agrees(
    busy: PgQueue, running: Running
) -> None:
    async with running(busy) as worker:
        with served(busy, worker) as port:
            jobs = [await busy.tasks[HOSTILE].aenqueue() for _ in range(3)]
            await ended(busy, *jobs, await busy.tasks["die"].aenqueue())
            await until(lambda: not worker.inspect().backlog)
            status, text = await asyncio.to_thread(get, port, "/metrics")
            ready = await asyncio.to_thread(get, port, "/readyz")
            live = await asyncio.to_thread(get, port, "/healthz")
            lost = await asyncio.to_thread(get, port, "/elsewhere")
    found = values(text)
    assert (status, ready, live, lost[0]) == (200, (200, "ok\n"), (200, "ok\n"), 404)
    assert found["pgqueue_attempts_total", "succeeded", HOSTILE, HOSTILE] == 3
    assert found["pgqueue_attempts_total", "dead", "default", "die"] == 1
    assert found["pgqueue_jobs_enqueued_total", HOSTILE, HOSTILE] == 3
    assert found["pgqueue_job_wait_seconds_count", HOSTILE, HOSTILE] == 3
    assert found["pgqueue_job_run_seconds_bucket", "+Inf", HOSTILE, HOSTILE] == 3
    assert found["pgqueue_worker_claims_total",] > 0
    assert (found["pgqueue_worker_ready",], found["pgqueue_worker_live",]) == (1, 1)
    assert_promtool_agrees(text)


def assert_promtool_agrees(text: str) -> None:
    """Names, units and help as Prometheus wants them."""
    checked = subprocess.run(  # noqa: S603 - our own words
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


async def test_metrics_of_the_queue_tell_depths_ages_workers_schedules_and_limits(
    busy: PgQueue, running: Running, dsn: str
) -> None:
    busy.schedules.put("nightly", busy.tasks["die"].call(), "0 3 * * *")
    async with running(busy):
        await ended(busy, await busy.tasks[HOSTILE].aenqueue())
        await until(lambda: values(prometheus.queue_text(busy))["pgqueue_workers", "serving"] == 1)
    busy.tasks["die"].enqueue()
    printed = pgqueue("metrics", dsn=dsn)
    found = values(printed.stdout)
    assert found["pgqueue_up",] == 1
    assert found["pgqueue_queue_jobs", "default", "ready"] == 1
    assert found["pgqueue_queue_oldest_ready_seconds", "default"] >= 0
    assert found["pgqueue_schedule_lag_seconds", "nightly"] == 0
    limits = {
        key[1]: value for key, value in values(prometheus.queue_text(busy)).items() if "limit_most" in key[0]
    }
    assert limits == {"name:of-us": 3}
    assert found["pgqueue_workers", "alive"] == 0
    assert found["pgqueue_table_bytes", "jobs"] > 0
    assert_promtool_agrees(printed.stdout)


def test_the_last_day_that_is_verified_in_a_lake_is_told_by_its_end(queue: PgQueue) -> None:
    name = "pgqueue_lake_verified_until_timestamp_seconds"
    assert (name,) not in values(prometheus.queue_text(queue))
    ask(
        queue,
        "insert into pgqueue.lake_days (day, history_rows, dead_rows, checksum, below, lake)"
        " values ('2026-01-20', 1, 0, 0, 9, 'x'), ('2026-01-19', 1, 0, 0, 9, 'x')",
    )
    assert values(prometheus.queue_text(queue))[name,] == datetime(2026, 1, 21, tzinfo=UTC).timestamp()


def test_a_stalled_worker_is_told_by_its_name(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)"
        " values (gen_random_uuid(), 'infinity', 'web-1', 7, 5, '0', true, now() - interval '90 s', 36)",
    )
    found = values(prometheus.queue_text(queue))
    assert found["pgqueue_worker_problem_seconds", "stalled", "web-1:7"] >= 90
    assert (found["pgqueue_workers", "stalled"], found["pgqueue_workers", "serving"]) == (1, 0)


async def test_what_the_dashboard_and_the_rules_name_is_exported(busy: PgQueue, running: Running) -> None:
    async with running(busy) as worker:
        with served(busy, worker) as port:
            await ended(busy, await busy.tasks[HOSTILE].aenqueue())
            exported = names((await asyncio.to_thread(get, port, "/metrics"))[1])
            exported |= names(await asyncio.to_thread(prometheus.queue_text, busy))
    asked = [expr for panel in panels() for expr in expressions(panel)]
    asked.append(grafana()["templating"]["list"][1]["query"])
    asked += re.findall(r"expr: (.*(?:\n {10,}.*)*)", (METRICS / "alerts.yml").read_text(encoding="utf-8"))
    named = {name for text in asked for name in re.findall(r"\bpgqueue_\w+", text)}
    assert len(named) > 25
    assert named <= exported


def grafana() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((METRICS / "grafana.json").read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    return [one for one in grafana()["panels"] if one["type"] != "row"]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


async def test_each_panel_says_what_it_shows_and_follows_the_chosen_queue(
    busy: PgQueue, running: Running
) -> None:
    async with running(busy) as worker:
        with served(busy, worker) as port:
            await ended(busy, await busy.tasks[HOSTILE].aenqueue())
            text = (await asyncio.to_thread(get, port, "/metrics"))[1]
            text += await asyncio.to_thread(prometheus.queue_text, busy)
    of_queues = {
        sample.name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "queue" in sample.labels
    }
    assert len({panel["id"] for panel in grafana()["panels"]}) == len(grafana()["panels"])
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        for expr in expressions(panel):
            if set(re.findall(r"\bpgqueue_\w+", expr)) & of_queues:
                assert "$queue" in expr, expr
    assert [one["title"] for one in panels() if one["type"] == "stat"] == [
        "Dead jobs", "Oldest ready job", "Serving workers", "Failed attempts",
    ]  # fmt: skip
    (link,) = grafana()["links"]
    assert link["url"] == "${dashboard}"
    pages = {one.path for one in PAGES}
    links = {one["url"] for panel in panels() for one in panel["fieldConfig"]["defaults"].get("links", ())}
    assert {one.removeprefix("${dashboard}") for one in links} <= pages


def promtool(*words: str) -> None:
    checked = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - our own words
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_the_rules_and_they_fire_when_they_should() -> None:
    promtool("check", "rules", str(METRICS / "alerts.yml"))
    promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yml")))


def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:number_{number}",
            "expr": expr.replace("$__rate_interval", "5m").replace("$queue", ".*"),
        }
        for number, expr in enumerate(expr for panel in panels() for expr in expressions(panel))
    ]
    file = tmp_path / "rules.json"  # YAML, too
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(file))


def test_each_rule_links_to_a_section_of_the_documentation() -> None:
    rules = (METRICS / "alerts.yml").read_text(encoding="utf-8")
    links = re.findall(r'runbook_url: "\{\{ \$externalLabels.docs_pgqueue \}\}/(\S+)/#(\S+)"', rules)
    assert len(links) == rules.count("- alert:") == rules.count("summary:")
    for page, section in links:
        text = (METRICS.parent / f"{page}.md").read_text(encoding="utf-8")
        heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert section in {
            re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads
        }, section


def test_dead_jobs_are_counted_by_task_and_all_after_the_largest_fifty_as_one(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, priority, attempts, max_attempts, collisions, reason, "
        "queue, task, args) select n, now(), now(), now(), 0, 1, 1, 0, 'exhausted', 'mail', 'task ' || least(n % 100, 60), '{}' "
        "from generate_series(1, 1000) as n",
    )
    found = values(prometheus.queue_text(queue))
    dead = {key[1:]: value for key, value in found.items() if key[0] == "pgqueue_dead_jobs"}
    assert len(dead) == DEAD_TASKS + 1
    assert dead["mail", "task 60"] == 400
    assert dead[OTHER, OTHER] == 1000 - 400 - 10 * (DEAD_TASKS - 1)
    assert found["pgqueue_dead_jobs_estimated",] == 0


def test_a_number_that_is_an_estimate_has_a_companion_that_says_so(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(
        queue,
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, priority, attempts, max_attempts, collisions, reason, "
        "queue, task, args) select n, now(), now(), now(), 0, 1, 1, 0, 'exhausted', 'mail', 'send', '{}' "
        "from generate_series(1, 10) as n",
    )
    monkeypatch.setattr(insight, "DEAD_COUNTED", 5)
    found = values(prometheus.queue_text(queue))
    assert (found["pgqueue_dead_jobs", "mail", "send"], found["pgqueue_dead_jobs_estimated",]) == (5, 1)


def test_a_queue_that_nobody_serves_and_a_limit_that_holds_back_are_told(queue: PgQueue) -> None:
    @queue.task(name="sync", queue="partners", limit=Limit(1, name="api"))
    def sync() -> None: ...

    queue.database.run(lanes.declare(queue.limits))
    worker = listed(queue, timedelta(hours=1))
    first, _ = (sync.using(run_at=datetime.now(UTC) - timedelta(minutes=20)).enqueue() for _ in range(2))
    ask(queue, "update pgqueue.workers set queues = '{mail}'")
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', in_lane = null, attempts = 1, claimed_at = now(), worker_id = %s where id = %s",
        worker,
        first.id,
    )
    queue.control.pause("media")
    found = values(prometheus.queue_text(queue))
    assert found["pgqueue_queue_workers", "partners"] == 0
    assert found["pgqueue_problems", "queue not served", "critical"] == 1
    assert found["pgqueue_limit_held_back_seconds", "name:api"] == pytest.approx(1200, abs=60)


async def test_quantiles_of_the_last_minutes_have_the_label_of_prometheus(
    busy: PgQueue, running: Running
) -> None:
    async with running(busy):
        await ended(busy, await busy.tasks[HOSTILE].aenqueue())
    # A worker writes what it measured when a minute is over, and when it ends.
    text = prometheus.queue_text(busy)
    assert re.findall(r'^pgqueue_recent_run_seconds\{quantile="([\d.]+)"', text, re.MULTILINE) == [
        "0.5",
        "0.95",
        "0.99",
    ]
    assert "# TYPE pgqueue_recent_run_seconds summary" in text
    assert_promtool_agrees(text)


async def test_while_the_loop_is_blocked_the_endpoint_answers_and_says_so(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgqueue.values.workers.health.BLOCKED_FOR_LONG", 0.2)
    blocking, released = threading.Event(), threading.Event()

    @queue.task(name="block")
    async def block() -> None:
        blocking.set()
        released.wait(20)

    answers: list[tuple[int, str]] = []

    def look(port: int) -> None:
        blocking.wait(20)
        while not answers or answers[0][0] != 503:
            answers[:] = [get(port, path) for path in ("/healthz", "/readyz", "/metrics")]
        released.set()

    async with running(queue, blocked_after=timedelta(seconds=0.1)) as worker:
        with served(queue, worker) as port:
            thread = threading.Thread(target=look, args=[port])
            thread.start()
            await ended(queue, await block.aenqueue())
            await asyncio.to_thread(thread.join)
            await until(lambda: worker.inspect().blocked is None)
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
    for status, text in answers[:2]:
        assert status == 503
        assert "its event loop has been blocked for" in text
        assert "by task block (job" in text
    assert values(answers[2][1])["pgqueue_worker_loop_blocked_seconds",] > 0


def test_without_a_database_the_endpoint_of_the_queue_answers_that_it_is_away() -> None:
    away = PgQueue(f"postgresql://u:secret@{LOOPBACK}:1/nowhere?connect_timeout=2")
    with prometheus.queue_endpoint(away, host=LOOPBACK, port=0) as endpoint:
        assert values(get(endpoint.port, "/metrics")[1]) == {("pgqueue_up",): 0}
        status, text = get(endpoint.port, "/readyz")
        assert (status, get(endpoint.port, "/healthz")[0]) == (503, 200)
        assert "database: " in text
        assert "secret" not in text
    with pytest.raises(ConnectionFailed):
        prometheus.queue_text(away)
    away.close()


def test_a_worker_without_its_database_lives_and_is_not_ready() -> None:
    gone = Vitals(
        stopping=False,
        beats=True,
        renewed=40.0,
        lease=30.0,
        looked=90.0,
        look_within=25.0,
        not_listening=90.0,
        blocked=None,
    )
    with prometheus.serving_worker(
        PgQueue("postgresql://nowhere"), lambda: gone, host=LOOPBACK, port=0
    ) as one:
        assert get(one.port, "/healthz") == (200, "ok\n")
        status, text = get(one.port, "/readyz")
        assert status == 503
        assert text.splitlines()[0] == "its lease has not been renewed for 40 s"
        assert values(get(one.port, "/metrics")[1])["pgqueue_worker_stalled",] == 1


def test_a_port_that_another_worker_has_is_refused_in_one_sentence(queue: PgQueue) -> None:
    worker = Worker(queue)
    with (
        served(queue, worker) as port,
        pytest.raises(ConfigurationError, match=f"port {port}: Address already in use"),
    ):
        prometheus.serving_worker(queue, worker.vitals, host=LOOPBACK, port=port)


def test_a_client_that_sends_nothing_holds_up_no_other(queue: PgQueue) -> None:
    with served(queue, Worker(queue)) as port, socket.create_connection((LOOPBACK, port)):
        assert get(port, "/metrics")[0] == 200


def claims(task: str, count: int) -> list[Claim]:
    now = datetime.now(UTC) - timedelta(seconds=2)
    worker = uuid4()
    return [
        Claim(n, worker, 1, 1, 1, 0, "mail", task, "{}", now.timestamp(), now.timestamp(), 0.0)
        for n in range(count)
    ]


def test_ten_thousand_tasks_are_two_hundred_and_one_series() -> None:
    metrics = JobMetrics()
    for number in range(10_000):
        metrics.claimed(held := claims(f"task {number}", 1))
        metrics.ended([Succeeded(held[0], 0.02)])
    registry = CollectorRegistry()
    registry.register(metrics)
    found = values(generate_latest(registry).decode())
    outcomes = [key for key in found if key[0] == "pgqueue_attempts_total"]
    assert len(outcomes) == MOST + 1
    assert found["pgqueue_attempts_total", "succeeded", OTHER, OTHER] == 10_000 - MOST
    assert sum(found[key] for key in outcomes) == 10_000
    assert sum(value for key, value in found.items() if key[0] == "pgqueue_job_wait_seconds_count") == 10_000


def test_a_batch_of_several_tasks_and_ends_is_counted_by_each() -> None:
    metrics, (one, two, three) = (
        JobMetrics(),
        [claims(name, 1)[0] for name in ("a", "b", "half \ud800" + "x" * 500)],
    )
    metrics.ended([Succeeded(one, 0.5), Succeeded(two, 2.0), Succeeded(three, 1.0)])
    registry = CollectorRegistry()
    registry.register(metrics)
    found = values(generate_latest(registry).decode())
    assert found["pgqueue_job_run_seconds_bucket", "0.5", "mail", "a"] == 1
    assert found["pgqueue_job_run_seconds_bucket", "1.0", "mail", "b"] == 0
    assert found["pgqueue_job_run_seconds_sum", "mail", "b"] == 2.0
    assert [len(key[2]) <= LONGEST + 8 for key in found if len(key) > 2] == [True] * sum(
        len(key) > 2 for key in found
    )
    assert found["pgqueue_completion_batch_jobs_sum",] == 3


def test_jobs_of_one_task_in_two_queues_and_a_clock_that_is_behind_are_counted_well() -> None:
    metrics, now = JobMetrics(), time.time()
    held = [
        msgspec.structs.replace(claims("a", 1)[0], queue=queue, run_at_epoch=now + late)
        for queue, late in (("mail", 100.0), ("mail", -0.4), ("bulk", 100.0))
    ]
    metrics.claimed(held)
    metrics.ended([Succeeded(held[0], 1.0), Returned(held[2])])
    registry = CollectorRegistry()
    registry.register(metrics)
    found = values(generate_latest(registry).decode())
    assert found["pgqueue_job_wait_seconds_count", "mail", "a"] == 2
    assert 0.4 <= found["pgqueue_job_wait_seconds_sum", "mail", "a"] < 60
    assert found["pgqueue_job_wait_seconds_sum", "bulk", "a"] == 0
    assert found["pgqueue_attempts_total", "succeeded", "mail", "a"] == 1
    assert found["pgqueue_attempts_total", "returned", "bulk", "a"] == 1
    assert found["pgqueue_job_run_seconds_count", "bulk", "a"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_histogram_counts_as_one_that_looks_at_each_number(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - made-up numbers
    numbers = [chance.choice((*SECONDS, chance.expovariate(0.1), 10_000.0)) for _ in range(500)]
    times, waits = Histogram(SECONDS), Histogram(SECONDS)
    for start in range(0, 500, 50):
        some = sorted(numbers[start : start + 50])
        times.add(some)
        waits.add_waits([-one for one in reversed(some)], 0.0)
    times.add([])
    found, summed = times.buckets()
    assert found == [
        *((str(bound), sum(one <= bound for one in numbers)) for bound in SECONDS),
        ("+Inf", 500),
    ]
    assert summed == pytest.approx(sum(numbers))
    waited, waited_for = waits.buckets()
    assert waited == found
    assert waited_for == pytest.approx(summed)


def test_a_wait_until_an_instant_that_is_to_come_counts_as_none() -> None:
    waits = Histogram(SECONDS)
    waits.add_waits([90.0, 100.5, 200.0], 100.0)
    found, summed = waits.buckets()
    assert (found[0], dict(found)["10.0"], summed) == (("0.001", 2), 3, 10.0)


def test_several_servers_that_ask_at_once_cost_the_database_one_look(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, looks = QueueMetrics(queue), list[None]()

    def look() -> list[Metric]:
        looks.append(None)
        return []

    monkeypatch.setattr(metrics, "_look", look)
    assert [list(metrics.collect()) for _ in range(3)] == [[], [], []]
    assert len(looks) == 1
