"""Builds the site of the documentation, strictly: ``make docs``.

A page may link to any file of the repository, as it does where the repository is read. So the pages are first copied to a folder,
with what the site needs: the project's own pages under ``project/``, a source file that is linked under ``source/``, links that
lead there, and what is read from the code. The generator only sees that folder, and knows nothing of ours. After it, the texts of
all pages are written for language models.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath

import cli_page
import database_page
import metrics_page
import yaml
from markdownify import markdownify

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "site"
PROJECT = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
GENERATED = {
    "reference/cli.md": cli_page.commands,
    "reference/database.md": database_page.tables_and_functions,
    "reference/metrics.md": metrics_page.metrics,
}
"""Pages whose line ``::: generated`` stands for what is read from the code."""
BEHIND = ("adr/", "project/", "reference/")
"""Pages that the search shows behind others."""

_FENCED = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_ABOUT_A_BLOCK = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
_STATES = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Copy the pages, run the generator, and write the texts."""
    prepare()
    generator = [sys.executable, "-m", "mkdocs", "build"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(generator, cwd=ROOT, check=False, env=env, stderr=subprocess.PIPE, text=True)  # noqa: S603 - the lines above have it
    sys.stderr.writelines(
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO")
    )
    if done.returncode:
        sys.exit("the site was not built: what is above is to be mended")
    write_texts()


def prepare() -> None:
    """Write every page and every picture of the site into one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in PROJECT:
        _write(f"project/{name}", _text(ROOT / name))
    pages = {path.relative_to(PAGES).as_posix(): _text(path) for path in PAGES.rglob("*.md")}
    for path in {path for uri, text in pages.items() for path in _linked(text, _folder(uri))}:
        if _place(path).startswith("source/") and (ROOT / path).exists():
            _write(_place(path), _source_page(ROOT / path, path))
    for uri, text in pages.items():
        _write(uri, _page(uri, text))


def _page(uri: str, markdown: str) -> str:
    """A page with links that lead to where their files are on the site, and with what is read from the code."""
    if uri in GENERATED:
        markdown = markdown.replace("::: generated", GENERATED[uri](ROOT))
    markdown = _STATES.sub(lambda found: _table_of_states(found[1]), markdown)
    markdown = _COMMENT.sub("", _ABOUT_A_BLOCK.sub(r'```\2 title="\1"', markdown))
    boost = 0.5 if uri.startswith(BEHIND) else 1
    meta = {"description": _first_sentence(markdown), "search": {"boost": boost}}
    described = yaml.safe_dump(meta, allow_unicode=True, width=1000)
    return f"---\n{described}---\n\n" + _outside_of_blocks(
        markdown, lambda text: _LINK.sub(lambda link: _led(link, uri), text)
    )


def write_texts() -> None:
    """Write ``llms.txt``, an index with a line for each page, and ``llms-full.txt``, all pages in one text."""
    config = yaml.load(_text(ROOT / "mkdocs.yml"), Loader=_Plain)  # noqa: S506 - it makes no objects
    index = [
        f"# {config['site_name']}\n\n> {config['site_description']}\n\nAll pages in one text: [llms-full.txt](llms-full.txt)"
    ]
    whole = []
    for section in config["nav"]:
        ((title, members),) = section.items()
        index.append(f"\n## {title}\n")
        for uri in _uris(members):
            address = _address(uri)
            content = _content(SITE / address / "index.html")
            index.append(f"- [{_heading(content)}]({address}): {_description(uri)}")
            whole.append(f"<!-- {address} -->\n\n{content}")
    (SITE / "llms.txt").write_text("\n".join(index) + "\n", encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(whole) + "\n", encoding="utf-8")


class _Plain(yaml.SafeLoader):
    """Reads the settings as plain values: what names an object of Python is left out."""


_Plain.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _uris(members: object) -> Iterator[str]:
    """The pages of a part of the navigation, in order."""
    match members:
        case str():
            yield members
        case list():
            for one in members:
                yield from _uris(one)
        case dict():
            for one in members.values():
                yield from _uris(one)


def _address(uri: str) -> str:
    """Where a page is, from the root of the site: ``start/install.md`` is ``start/install/``."""
    return re.sub(r"(?:(?<=/)|^)README/$", "", uri.removesuffix(".md") + "/") or "./"


def _content(html: Path) -> str:
    article = _text(html).partition("<article")[2].partition(">")[2].partition("</article>")[0]
    return _as_text(article)


def _heading(content: str) -> str:
    return (
        next(line for line in content.splitlines() if line.startswith("# "))
        .removeprefix("# ")
        .replace("`", "")
    )


def _description(uri: str) -> str:
    return str(yaml.safe_load(_text(PAGES / uri).split("---\n")[1])["description"])


def _write(uri: str, text: str) -> None:
    (PAGES / uri).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / uri).write_text(text, encoding="utf-8")


_JOINED = (
    (r"\*\*\n +\(", "** ("),
    (r",\s+default:\s+", ", default: "),
    (r"\s+\)\s+\u2013\s+", "): "),
    (r"\s+\u2013\s+", ": "),
    (r"\n{3,}", "\n\n"),
)
"""What the theme writes over several lines stands in one."""


def _as_text(content: str) -> str:
    plain = re.sub(r'<a [^>]*class="headerlink".*?</a>', "", content)
    text = markdownify(plain, heading_style="ATX", escape_misc=False, escape_underscores=False)
    for apart, joined in _JOINED:
        text = re.sub(apart, joined, text)
    return str(text).strip()


def _first_sentence(markdown: str) -> str:
    """The first sentence of the first paragraph, without its marks."""
    paragraphs = (one.strip() for one in _FENCED.sub("", markdown).split("\n\n"))
    prose = next((one for one in paragraphs if one and one[0] not in "#<|:!-`>"), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.:?])\s", plain)[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _folder(uri: str) -> str:
    """The folder of the repository in which the page of this address is."""
    return "" if uri.startswith("project/") else dirname(f"docs/{uri}")


def _linked(markdown: str, folder: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    return (normpath(f"{folder}/{link[1]}".lstrip("/")) for link in _LINK.finditer(_FENCED.sub("", markdown)))


def _place(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path.startswith("docs/") and not path.endswith(".py") and not (ROOT / path).is_dir():
        return path.removeprefix("docs/")
    return f"project/{path}" if path in PROJECT else f"source/{path}.md"


def _led(link: re.Match[str], uri: str) -> str:
    place = _place(normpath(f"{_folder(uri)}/{link[1]}".lstrip("/")))
    return relpath(place, dirname(uri) or ".") + (link[2] or "")


def _outside_of_blocks(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for block in _FENCED.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def _source_page(path: Path, name: str) -> str:
    """A source file, or the files of a folder, as a page that the search leaves out."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    blocks = [
        f'````{one.suffix[1:]} title="{one.name}"\n{_text(one)}````\n' for one in files if one.is_file()
    ]
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {name}\n\n" + "\n".join(blocks)


def _table_of_states(edges: str) -> str:
    """A diagram of states as a table: no program that draws is loaded."""
    rows = re.findall(r"^ *(\S+) --> (\S+?)(?:: (.*))?$", edges, re.MULTILINE)
    named = [(one.replace("[*]", "(new)"), after, why) for one, after, why in rows if after != "[*]"]
    return "\n".join(
        ["| From | To | When |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in named)]
    )


if __name__ == "__main__":
    main()
