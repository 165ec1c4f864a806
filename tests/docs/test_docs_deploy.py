"""The files that deploy pgqueue, ``docs/examples/deploy``: pages show them as they are, and each fits its own tool's rules."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import psycopg
import pytest
import yaml
from docs.pages import DOCS, Block, blocks, page_id, pages
from looking import ask, wait_until
from schema.logins import login

from pgqueue import PgQueue
from pgqueue.values.length import read_length

FILES = DOCS / "examples" / "deploy"
NOT_SHOWN = {"container/requirements.txt"}
SHOWN = [(page, one) for page in pages() for one in blocks(page) if one.word == "example"]
STOPS_AFTER = 30
"""Seconds after the grace in which a supervisor waits for its processes before it kills them; 0 of a single process."""


def texts(*folders: str) -> list[Path]:
    return sorted(one for folder in folders for one in (FILES / folder).iterdir() if one.is_file())


def manifests(*names: str) -> list[dict[str, Any]]:
    return [one for name in names for one in yaml.safe_load_all((FILES / "kubernetes" / name).read_text())]


@pytest.mark.parametrize(
    ("page", "block"), SHOWN, ids=[f"{page_id(page)}-{one.argument}" for page, one in SHOWN]
)
def test_a_page_shows_a_file_as_it_is(page: Path, block: Block) -> None:
    assert block.code == (FILES / block.argument).read_text(), f"{page}: copy the file again"


def test_every_file_is_shown() -> None:
    there = {str(one.relative_to(FILES)) for one in FILES.rglob("*") if one.is_file()}
    assert {one.argument for _, one in SHOWN} == there - NOT_SHOWN


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = tmp_path / "pgqueue"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in texts("systemd"):
        (tmp_path / unit.name).write_text(
            unit.read_text().replace("/srv/shop/venv/bin/pgqueue", str(program))
        )
    names = [one.name.replace("@.", "@mail.") for one in texts("systemd")]
    command = ["systemd-analyze", "verify", "--man=no", *(f"./{name}" for name in names)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["pgqueue-worker.service", "pgqueue-worker@.service"])
def test_systemd_waits_longer_than_the_worker_needs_to_stop(name: str) -> None:
    unit = (FILES / "systemd" / name).read_text()
    (grace,) = re.findall(r"--grace (\d+)", unit)
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(stop) > int(grace) + STOPS_AFTER


def test_the_worker_of_the_unit_finishes_its_job_when_systemd_stops_it(
    queue: PgQueue, tmp_path: Path
) -> None:
    """As systemd does with ``KillMode=mixed``: it signals the first process; by the login of a role with a worker's rights."""
    unit = (FILES / "systemd" / "pgqueue-worker.service").read_text()
    (line,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    jobs = tmp_path / "shop" / "jobs.py"
    jobs.parent.mkdir()
    jobs.write_text(
        "from pathlib import Path\nfrom pgqueue import PgQueue\nqueue = PgQueue()\n\n@queue.task(name='send')\n"
        "def send(place: str) -> None:\n    Path(place, 'begun').touch()\n    Path(place, 'go on').read_bytes()\n"
    )
    os.mkfifo(tmp_path / "go on")
    env = {"PGQUEUE_DSN": login(queue.database.dsn, "worker"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pgqueue", *shlex.split(line)[1:]]
    with subprocess.Popen(  # noqa: S603 - the unit's own
        command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as worker:
        try:
            job = queue.enqueue_named("send", {"place": str(tmp_path)})
            wait_until((tmp_path / "begun").exists)
            worker.send_signal(signal.SIGTERM)
            assert worker.stderr is not None
            assert any("worker stopping" in line and "job" in line for line in worker.stderr)
            (tmp_path / "go on").write_bytes(b"")
            worker.communicate(timeout=60)
            assert worker.returncode == 0
        finally:
            worker.kill()
    ended = ask(queue, "select outcome, attempts from pgqueue.job_history where id = %s", job.id)
    assert ended == [("succeeded", 1)]


def test_the_compose_file_fits_the_schema_of_compose() -> None:
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text())
    compose = yaml.safe_load((FILES / "container" / "compose.yaml").read_text())
    jsonschema.validate(compose, schema)
    assert {"postgres", "migrate", "worker", "web"} <= {*compose["services"]}
    assert (
        read_length(compose["services"]["worker"]["stop_grace_period"]).total_seconds() > grace_in_the_image()
    )


def grace_in_the_image() -> int:
    (line,) = re.findall("^CMD (.*)$", (FILES / "container" / "Dockerfile").read_text(), re.MULTILINE)
    words = json.loads(line)
    return int(words[words.index("--grace") + 1])


def test_the_dockerfile_has_no_finding_of_its_linter() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(  # noqa: S603 - a fixed command
        [str(hadolint), str(FILES / "container" / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


SCHEMAS = Path(sys.prefix, "schemas", "bin", "python")
"""Kubernetes' schemas take 108 MB, and KEDA's models bring a plugin of pytest: they are in an environment of their own."""


@pytest.mark.skipif(not SCHEMAS.exists(), reason="there are no schemas; `make schemas` installs them")
def test_the_manifests_fit_the_schemas_of_kubernetes_and_keda() -> None:
    found = manifests("migrate.yaml", "worker.yaml", "keda.yaml")
    wrong = {**found[0], "spec": {**found[0]["spec"], "backofLimit": 2}}
    done = subprocess.run(  # noqa: S603 - our own program
        [str(SCHEMAS), str(Path(__file__).with_name("schemas.py"))],
        input=json.dumps([*found, wrong]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    *faults, known = json.loads(done.stdout)
    assert faults == [None] * len(found)
    assert "backofLimit" in known


def deployment() -> dict[str, Any]:
    (found,) = [one for one in manifests("worker.yaml") if one["kind"] == "Deployment"]
    return found["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def test_kubernetes_waits_longer_than_the_worker_needs_to_stop() -> None:
    pod = deployment()
    (grace,) = [one for one in pod["containers"][0]["args"] if one.startswith("--grace=")]
    assert pod["terminationGracePeriodSeconds"] > int(grace.removeprefix("--grace="))


def test_the_query_of_the_autoscaler_runs_with_the_rights_of_a_monitor_and_counts_from_the_first_job_on(
    queue: PgQueue,
) -> None:
    (trigger,) = [
        one["spec"]["triggers"][0] for one in manifests("keda.yaml") if one["kind"] == "ScaledObject"
    ]
    query = trigger["metadata"]["query"].encode()
    with psycopg.connect(login(queue.database.dsn, "monitor"), autocommit=True) as monitor:
        assert monitor.execute(query).fetchall() == [(0,)]
        queue.task(name="send")(lambda: None).enqueue()
        assert monitor.execute(query).fetchall()[0][0] >= 1
        with queue.take(1) as (job,):  # the last worker has no other job
            ask(queue, "update pgqueue.workers set running = %s", [job.id])
            assert monitor.execute(query).fetchall() == [(1,)]
