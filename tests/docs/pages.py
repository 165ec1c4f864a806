"""Reads the pages of the documentation: their code blocks, and what the comments before them ask for.

A page is read from top to bottom. An HTML comment, which readers of the rendered page do not see, says how
the next block is to be taken; the comments are listed in ``CONTRIBUTING.md``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_COMMENT = re.compile(
    r"^<!-- (?P<word>file|example|worker|output|floors|states|setup|trace)(?:: (?P<rest>.*))? -->$"
)
_FENCE = re.compile(r"^```(?P<language>\w*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """Something on a page that is to be run or checked.

    Attributes:
        page: where it stands.
        line: the line of its first line of code, from 1.
        language: what the fence says; ``setup`` for SQL hidden in a comment.
        code: its text.
        word: the comment before it, or "".
        argument: what the comment says after the colon.
    """

    page: Path
    line: int
    language: str
    code: str
    word: str = ""
    argument: str = ""

    def __str__(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def words_in_code(page: Path) -> set[str]:
    """Everything that a page sets in backticks outside its blocks."""
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    word, argument = "", ""
    numbered = iter(enumerate(lines, start=1))
    for number, line in numbered:
        if comment := _COMMENT.match(line):
            word, argument = comment["word"], comment["rest"] or ""
            if word == "setup":
                yield Block(page, number, "setup", argument)
                word, argument = "", ""
        elif fence := _FENCE.match(line):
            code = []
            for _, inside in numbered:
                if inside == "```":
                    break
                code.append(inside)
            yield Block(page, number + 1, fence["language"], "\n".join(code) + "\n", word, argument)
            word, argument = "", ""
        elif line:
            assert not word, f"{page}:{number}: the comment {word!r} stands before no block"
