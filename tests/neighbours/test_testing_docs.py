"""The test files that docs/guides/testing.md shows are run as a user would run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import DOCS, blocks

DJANGO = """
import sys, unittest
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

where = conninfo_to_dict(sys.argv.pop())
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": where["dbname"], "USER": where["user"],
    "HOST": where["host"], "PORT": where["port"],
}})
django.setup()
unittest.main(sys.argv.pop(1), argv=sys.argv, verbosity=2)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page, in a folder."""
    for block in blocks(DOCS / "guides" / "testing.md"):
        if block.word == "file":
            path = tmp_path / block.argument
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
    return tmp_path


def _python(folder: Path, *words: str) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return ended.stdout + ended.stderr


def test_the_suite_on_the_page_passes_with_pytest(project: Path, dsn: str) -> None:
    said = _python(
        project,
        "-m",
        "pytest",
        "-p",
        "no:django",
        "--ignore=test_with_django.py",
        "--ignore=test_that_commits.py",
        "--pgqueue-dsn",
        dsn,
    )
    assert "4 passed" in said, said


def test_the_unittest_on_the_page_passes(project: Path) -> None:
    said = _python(project, "-m", "unittest", "test_with_unittest")
    assert "Ran 1 test" in said
    assert said.endswith("OK\n"), said


def test_the_django_test_case_on_the_page_passes_and_leaves_no_job(project: Path, dsn: str) -> None:
    (project / "run.py").write_text(DJANGO, encoding="utf-8")
    said = _python(project, "run.py", "test_with_django", dsn)
    assert "Ran 1 test" in said
    assert said.endswith("OK\n"), said


def test_the_test_case_on_the_page_that_commits_passes_and_leaves_no_job(project: Path, dsn: str) -> None:
    (project / "run.py").write_text(DJANGO, encoding="utf-8")
    said = _python(project, "run.py", "test_that_commits", dsn)
    assert "Ran 2 tests" in said
    assert said.endswith("OK\n"), said
