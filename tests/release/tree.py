"""What is released: the files of one commit, and the addresses that only a released package has.

The clone does not say where its repository is published. The person who makes a release says it. The page of a package index cannot
follow the relative links of the README: the page has addresses of the files of the release's tag.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
from release.clone import git, unpack

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?!\w+:)(?P<target>[^)\s]+)\)")
FOR_THE_INDEX = "README.index"
"""The README as the index shows it; the file of the clone stays as it is."""
README = '\nreadme = "README.md"\n'
AFTER_URLS = "\n[project.scripts]\n"


class ReleaseRefused(click.ClickException):
    """Nothing was built, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A commit that is to be released.

    Attributes:
        url: where the repository is published, without a slash at the end.
        version: as ``pyproject.toml`` has it.
        commit: its hash.
        epoch: when it was committed, in seconds since 1970: the time of each file that is built.
        dated: whether the changelog says when the version was released.
    """

    url: str
    version: str
    commit: str
    epoch: int
    dated: bool

    @property
    def tag(self) -> str:
        """The tag of the commit."""
        return f"v{self.version}"

    def address(self, path: str, *, kind: str = "blob") -> str:
        """Where a file of the release can be read; ``kind`` is ``raw`` for images."""
        return f"{self.url}/{kind}/{self.tag}/{path}"


def release_of(clone: Path, url: str) -> Release:
    """The commit that is checked out, as a release.

    Raises:
        ReleaseRefused: the address is missing or wrong, the clone has changes, or the version was released or is not described.
    """
    url = url.rstrip("/").removesuffix(".git")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)+", url):
        raise ReleaseRefused(
            f"URL={url!r} is not the address of a repository: "
            "give the page where yours is published, make release URL=https://HOST/OWNER/pgqueue"
        )
    if changed := git(clone, "status", "--porcelain"):
        raise ReleaseRefused(
            f"a release is built from a commit, and the clone has other files: commit or remove them\n{changed}"
        )
    version = tomllib.loads((clone / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    release = Release(
        url=url,
        version=version,
        commit=git(clone, "rev-parse", "HEAD"),
        epoch=int(git(clone, "log", "-1", "--format=%ct")),
        dated=_is_dated(clone, version),
    )
    if git(clone, "tag", "--list", release.tag):
        tagged = git(clone, "rev-list", "-n1", release.tag)
        if tagged != release.commit:
            raise ReleaseRefused(
                f"the tag {release.tag} is on the commit {tagged[:12]}, and this is {release.commit[:12]}: "
                "write the next version into pyproject.toml and CHANGELOG.md"
            )
    return release


def _is_dated(clone: Path, version: str) -> bool:
    text = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## {re.escape(version)}(, .+)?$", text, re.MULTILINE)
    if heading is None:
        raise ReleaseRefused(
            f"CHANGELOG.md has no heading `## {version}`: describe what this version changes for its users"
        )
    return heading[1] != ", unreleased"


def stage(release: Release, clone: Path, folder: Path) -> None:
    """Lay out what is released in a folder."""
    unpack(clone, release.commit, folder)
    page = (folder / "README.md").read_text(encoding="utf-8")
    (folder / FOR_THE_INDEX).write_text(with_addresses(page, release), encoding="utf-8")
    project = folder / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    readme = f'\nreadme = {{ file = "{FOR_THE_INDEX}", content-type = "text/markdown" }}\n'
    for before, after in ((README, readme), (AFTER_URLS, f"\n{_urls(release)}{AFTER_URLS}")):
        if text.count(before) != 1:
            raise ReleaseRefused(
                f"pyproject.toml has to have the line `{before.strip()}` once: addresses are written there"
            )
        text = text.replace(before, after)
    project.write_text(text, encoding="utf-8")


def with_addresses(text: str, release: Release) -> str:
    """A page of the clone's first folder, with addresses in place of its relative links; blocks of code stay as they are."""

    def absolute(found: re.Match[str]) -> str:
        target = f"README.md{found['target']}" if found["target"].startswith("#") else found["target"]
        address = release.address(target, kind="raw" if found["image"] else "blob")
        return f"{found['image']}{found['text']}({address})"

    parts, last = [], 0
    for block in FENCED.finditer(text):
        parts += [LINK.sub(absolute, text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, LINK.sub(absolute, text[last:])])


def _urls(release: Release) -> str:
    addresses = {
        "Homepage": release.url,
        "Documentation": release.address("docs/README.md"),
        "Changelog": release.address("CHANGELOG.md"),
        "Issues": f"{release.url}/issues",
        "Source": release.url,
        "Security": release.address("SECURITY.md"),
    }
    return "[project.urls]\n" + "".join(f'{name} = "{address}"\n' for name, address in addresses.items())
