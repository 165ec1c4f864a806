"""One name for each thing: the distribution is ``pgqueue-jobs``, and no page, message or file tells anyone to install another project's ``pgqueue``."""

import re
from pathlib import Path

import pytest

from pgqueue.values.hints import DISTRIBUTION, missing_extra

ROOT = Path(__file__).parents[2]
OTHERS = re.compile(
    r"(pip install|uv add|poetry add)[^\n`]*?['\" ](pgqueue)(?![\w-])|(?<![\w-])pgqueue\[[a-z]"
)


def test_nobody_is_told_to_install_the_distribution_of_another_project() -> None:
    folders = [ROOT / name for name in ("docs", "migrations", "pgqueue", "sql", "tests")]
    files = [
        *ROOT.glob("*.*"),
        ROOT / "Makefile",
        *(file for folder in folders for file in folder.rglob("*")),
    ]
    wrong = []
    for file in files:
        if file.suffix in {".md", ".py", ".toml", ".html", ""} and file.is_file() and file != Path(__file__):
            text = file.read_text(encoding="utf-8")
            wrong += [f"{file.relative_to(ROOT)}: {found[0]}" for found in OTHERS.finditer(text)]
    assert wrong == []


def test_a_message_of_a_missing_extra_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    said = missing_extra("top", "pgqueue top needs Textual")
    assert said == f"pgqueue top needs Textual: pip install '{DISTRIBUTION}[top]'"
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.6")
    assert missing_extra("top", "…").endswith(
        "The distribution pgqueue 0.6 that is installed is another project's: pip uninstall pgqueue"
    )
