"""The Celery project of the page: it runs on pgqueue with the three changed lines that the page shows, to the same end."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docs.pages import DOCS, blocks
from neighbours.serving import EXAMPLES, environment

from pgqueue import PgQueue

PROJECT = EXAMPLES / "celery"
PROGRAM = Path(__file__).with_name("celery_shop.py")
PAGE = DOCS / "moving" / "from-celery.md"
RESULTS = {
    "bought": 30,
    "counted": {"cup": 14},
    "delivered": "order 7 of 2 parts goes to 5 High St",
    "not delivered": True,
    "recounted": 700,
    "alone": 1200,
    "by name": "report of today",
    "eager": "bob paid 8.40 after 2 retries",
}


def changed_lines() -> list[tuple[str, str]]:
    """The lines that the page's diff changes: what they were, and what they are."""
    (diff,) = [block for block in blocks(PAGE) if block.language == "diff"]
    lines = [line for line in diff.code.splitlines() if line[:1] in {"-", "+"}]
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    assert all(before[0] == "-" and after[0] == "+" for before, after in pairs)
    return [(before[1:], after[1:]) for before, after in pairs]


def outcomes(system: str, folder: Path, tmp_path: Path, **settings: str) -> Any:
    journal = tmp_path / f"journal of {system}"
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, str(PROGRAM), system],
        cwd=folder,
        env=environment(JOURNAL=str(journal), **settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """The project with the page's changed lines."""
    folder = tmp_path / "moved"
    shutil.copytree(PROJECT, folder)
    files = [*folder.rglob("*.py")]
    for before, after in changed_lines():
        (found,) = [path for path in files if before in path.read_text().splitlines()]
        found.write_text(found.read_text().replace(f"{before}\n", f"{after}\n"))
    return folder


def test_the_page_changes_three_lines_and_nothing_of_celery_is_left(moved: Path) -> None:
    before, after = (
        [line for path in sorted(folder.rglob("*.py")) for line in path.read_text().splitlines()]
        for folder in (PROJECT, moved)
    )
    assert len(before) == len(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 3
    assert [
        line for line in after if "import" in line and " celery" in line.replace("pgqueue.moving.celery", "")
    ] == []


def test_celery_and_pgqueue_bring_the_project_to_the_same_end(
    moved: Path, tmp_path: Path, dsn: str, queue: PgQueue
) -> None:
    on_celery = outcomes(
        "celery", PROJECT, tmp_path, BROKER_URL="memory://", RESULT_BACKEND="cache+memory://"
    )
    on_pgqueue = outcomes("pgqueue", moved, tmp_path, BROKER_URL="redis://localhost", PGQUEUE_DSN=dsn)
    assert on_celery == on_pgqueue
    assert on_pgqueue["results"] == RESULTS
    assert on_pgqueue["journal"] == [
        "mail to ann@shop: ann paid 90.72 after 2 retries",
        "order 8 failed in shop.tasks.pack",
        "shop.tasks.reserve_at_supplier failed: no pan at the supplier",
    ]
    assert on_pgqueue["tasks"] == 15
    assert {"empty carts", "report"} == {one.name for one in queue.schedules.find()}
