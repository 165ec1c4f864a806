"""``pgqueue worker --reload``: a worker that starts again when the code changes, and that is stopped, not killed."""

import signal
import sys
from pathlib import Path

import pytest
from cli.commands import SHOP, only_row, pgqueue, started

from pgqueue import PgQueue


def test_a_changed_file_stops_the_worker_and_starts_it_with_the_new_code(dsn: str, tmp_path: Path) -> None:
    with started("worker", "--reload", dsn=dsn, folder=tmp_path) as worker:
        worker.until("Watching for file changes")
        worker.until("worker started")
        (tmp_path / "shop.py").write_text(SHOP.replace('f"sent {order_id}"', '"new code"'))
        worker.until("shop.py has changed; starting again")
        worker.until("worker stopped")
        worker.until("worker started")
        queue = PgQueue(dsn)
        handle = queue.enqueue_named("shop.send", {"order_id": 1})
        assert handle.result(timeout=30) == "new code"
        queue.close()
        worker.signal(signal.SIGTERM)
        worker.until("worker stopped")
        assert worker.ended() == 0
    assert only_row(dsn, "select count(*) from pgqueue.workers") == (0,)


def test_a_worker_that_cannot_start_is_started_again_at_the_next_change(dsn: str, tmp_path: Path) -> None:
    with started("worker", "--reload", dsn=dsn, folder=tmp_path, app=SHOP) as worker:
        worker.until("worker started")
        (tmp_path / "shop.py").write_text("import no_such_module\n")
        worker.until("The worker ended with exit code 2; the next change starts it again.")
        (tmp_path / "shop.py").write_text(SHOP)
        worker.until("worker started")
        worker.signal(signal.SIGINT)
        assert worker.ended() == 0


def test_without_the_package_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    said = pgqueue("--app", "shop:queue", "worker", "--reload")
    assert said.exit_code == 2
    assert "--reload needs the package watchfiles: pip install 'pgqueue-jobs[reload]'" in said.stderr
