"""The files of a release: built, made the same on each machine, and checked.

A build takes the times of its files from the commit. setuptools does this for a wheel; a source distribution is packed again.
"""

import gzip
import hashlib
import io
import os
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from html.parser import HTMLParser
from pathlib import Path

from release.steps import CheckFailed, run
from release.tree import Release

MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}
RENDER = "import sys; from readme_renderer.markdown import render; print(render(sys.stdin.read()))"
UNKNOWN = """
import sys
from trove_classifiers import classifiers
for one in sorted(set(sys.argv[1:]) - classifiers):
    print(one)
"""


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs of other projects, in an environment of their own.

    Attributes:
        folder: of the environment.
        epoch: the time of what they make, in seconds since 1970.
    """

    folder: Path
    epoch: int

    def run(self, program: str, *words: str | Path, given: str | None = None) -> str:
        """What one of them prints."""
        env = os.environ | {"SOURCE_DATE_EPOCH": str(self.epoch)}
        return run(self.folder / "bin" / program, *words, given=given, env=env)


def build(tools: Tools, source: Path, into: Path, *kinds: str) -> Path:
    """Build what the words ask for; the folder with it."""
    tools.run("python", "-m", "build", "--outdir", into, *kinds, source)
    for sdist in into.glob("*.tar.gz"):
        pack_again(sdist, tools.epoch)
    return into


def pack_again(sdist: Path, epoch: int) -> None:
    """Leave out of an archive who made it, when and in which order."""
    with tarfile.open(sdist) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        contents = [archive.extractfile(member) if member.isfile() else None for member in members]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as again:
            for member, content in zip(members, contents, strict=True):
                member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
                member.mode, member.pax_headers = 0o755 if member.mode & 0o100 else 0o644, {}
                again.addfile(member, content)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def contents_of(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, by their names."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unpacked(sdist: Path, folder: Path) -> Path:
    """The source distribution's folder, laid out in this one."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def files_below(folder: Path) -> set[str]:
    """The files of a folder and of its folders."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def check_same(one: Path, other: Path) -> None:
    """Two wheels have the same files with the same contents."""
    first, second = contents_of(one), contents_of(other)
    differing = sorted(name for name in first | second if first.get(name) != second.get(name))
    if differing:
        raise CheckFailed("these files differ", differing)


def check_sdist(source: Path, stage: Path) -> None:
    """A source distribution has each file of the commit, and otherwise only what setuptools writes."""
    made = files_below(source)
    own = {name for name in made if name in MADE_BY_SETUPTOOLS or ".egg-info/" in name}
    tracked = files_below(stage)
    if missing := sorted(tracked - made):
        raise CheckFailed("these files are missing; MANIFEST.in names what is packed", missing)
    if added := sorted(made - tracked - own):
        raise CheckFailed("these files are not in git", added)


def check_typed(wheel: Path) -> None:
    """Type checkers read the annotations of a package only with this file in it."""
    if "pgqueue/py.typed" not in contents_of(wheel):
        raise CheckFailed("the wheel has no file", ["pgqueue/py.typed"])


def check_metadata(tools: Tools, built: Sequence[Path], stage: Path) -> None:
    """The index takes the files, and knows the classifiers."""
    tools.run("twine", "check", "--strict", *built)
    project = tomllib.loads((stage / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if unknown := tools.run("python", "-c", UNKNOWN, *project["classifiers"]).splitlines():
        raise CheckFailed("the index does not know these classifiers", unknown)


def check_links(tools: Tools, wheel: Path, stage: Path, release: Release) -> None:
    """On the page of the index each link is an address, and one into the repository names a file of the release."""
    (name,) = (name for name in contents_of(wheel) if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(contents_of(wheel)[name])
    page = tools.run("python", "-c", RENDER, given=bytes(metadata.get_payload(decode=True)).decode())
    links = links_of(page) | {url.partition(", ")[2] for url in metadata.get_all("Project-URL", [])}
    if wrong := sorted(link for link in links if not leads_somewhere(link, stage, release)):
        raise CheckFailed("these links lead nowhere", wrong)


def leads_somewhere(link: str, stage: Path, release: Release) -> bool:
    """A link into the repository names a file of the release, and any other is an address."""
    for kind in ("blob", "raw"):
        if link.startswith(begin := release.address("", kind=kind)):
            return (stage / link.removeprefix(begin).partition("#")[0]).exists()
    return link.startswith("https://")


def links_of(page: str) -> set[str]:
    """What a page links to, but for its own headings."""
    found, own = set(), set()

    class Reader(HTMLParser):
        def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in {"href", "src"}:
                    found.add(value or "")
                elif name == "id":
                    own.add(f"#{value}")

    Reader().feed(page)
    return found - own


def write_sums(folder: Path) -> None:
    """The checksums of the files of a folder, as ``sha256sum --check`` reads them."""
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def write_packages(tools: Tools, tree: Path, programs: Path, file: Path) -> None:
    """Write the list of the packages of an environment (CycloneDX); nothing in it says where or when it was made."""
    made = ("--output-reproducible", "-o", file)
    tools.run(
        "cyclonedx-py", "environment", "--pyproject", tree / "pyproject.toml", *made, programs / "python"
    )
