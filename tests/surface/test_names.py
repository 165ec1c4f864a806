"""One name for each thing: the distribution is ``pgqueue-jobs``, and no page, message or file tells anyone to install another project's ``pgqueue``."""

import re
import subprocess
from pathlib import Path

import pytest

from pgqueue.values.hints import DISTRIBUTION, missing_extra

ROOT = Path(__file__).parents[2]
OTHERS = re.compile(
    r"(pip install|uv add|poetry add)[^\n`]*?['\" ](pgqueue)(?![\w-])|(?<![\w-])pgqueue\[[a-z]"
)


def test_nobody_is_told_to_install_the_distribution_of_another_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 - any git
    wrong = []
    for name in listed.stdout.splitlines():
        if (
            name.endswith((".md", ".py", ".toml", ".html", "Makefile"))
            and name != "tests/surface/test_names.py"
        ):
            text = (ROOT / name).read_text(encoding="utf-8")
            wrong += [f"{name}: {found[0]}" for found in OTHERS.finditer(text)]
    assert wrong == []


def test_a_message_of_a_missing_extra_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    said = missing_extra("top", "pgqueue top needs Textual")
    assert said == f"pgqueue top needs Textual: pip install '{DISTRIBUTION}[top]'"
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.6")
    assert missing_extra("top", "…").endswith(
        "The distribution pgqueue 0.6 that is installed is another project's: pip uninstall pgqueue"
    )
