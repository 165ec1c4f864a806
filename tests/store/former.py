"""The statements of the release before this one that this one has changed or no longer has.

Workers of that release send them while the schema is upgraded. Where git has that release's tag, they are read from it. A release
records them in the folder ``former/VERSION``, for readers who have its files and no git. Both hold them as they were sent: without
the header, and with the lists of columns that the release had written out. Nothing is recorded of statements that both releases
have: this release's stand for them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from release.clone import git, newest_tag_below, unpack

ROOT = Path(__file__).parents[2]
RECORDED = Path("tests", "store", "former")
SENT = "import json; from store.sqlfiles import SQL; print(json.dumps(SQL))"
HEADER = re.compile(r"\A(--.*\n)*")


def former_release(clone: Path = ROOT) -> str | None:
    """Its version; None: there was none."""
    if (clone / ".git").exists():
        tag = newest_tag_below(clone)
        return None if tag is None else tag.removeprefix("v")
    return next((folder.name for folder in (clone / RECORDED).glob("*")), None)


def former_statements(now: Mapping[str, str], clone: Path = ROOT) -> dict[str, str]:
    """Those that differ from these, by their names."""
    if (tag := newest_tag_below(clone)) is None:
        return statements_of(clone / RECORDED / (former_release(clone) or "none"))
    return differing_statements(statements_at(clone, git(clone, "rev-list", "-n1", tag)), now)


def differing_statements(former: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The former ones that are changed or gone."""
    stay = {name: HEADER.sub("", text) for name, text in now.items()}
    sent = {name: HEADER.sub("", text) for name, text in former.items()}
    return {name: text for name, text in sent.items() if stay.get(name) != text}


@cache
def statements_at(clone: Path, commit: str) -> Mapping[str, str]:
    """All statements of a commit, by their names."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(clone, commit, folder)
        for name in ("sql", "migrations"):  # as they are installed
            (folder / name).rename(folder / "pgqueue" / name)
        path = {"PYTHONPATH": os.pathsep.join([temporary, str(folder / "tests")])}
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-P", "-c", SENT], env=os.environ | path, check=True, stdout=subprocess.PIPE
        )
    return dict(json.loads(done.stdout))


def statements_of(folder: Path) -> dict[str, str]:
    """The statements in the files of a folder, by their names."""
    return {
        str(file.relative_to(folder).with_suffix("")): file.read_text(encoding="utf-8")
        for file in folder.rglob("*.sql")
    }


def record(clone: Path = ROOT) -> bool:
    """Write down those of the release before the commit that is checked out, and of no other; whether something was missing or too much."""
    release = former_release(clone)
    found = (
        {}
        if release is None
        else former_statements(statements_at(clone, git(clone, "rev-parse", "HEAD")), clone)
    )
    expected = {f"{release}/{name}": text for name, text in found.items()}
    if statements_of(clone / RECORDED) == expected:
        return False
    shutil.rmtree(clone / RECORDED, ignore_errors=True)
    for name, text in expected.items():
        file = clone / RECORDED / f"{name}.sql"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return True
