"""What git knows of a clone, and the files of one of its commits."""

import io
import subprocess
import tarfile
from pathlib import Path


def git(clone: Path, *words: str) -> str:
    """What git prints."""
    return _run(clone, words).decode().strip()


def unpack(clone: Path, revision: str, folder: Path) -> None:
    """Lay out the files of a commit in a folder: what git has, and nothing else."""
    with tarfile.open(fileobj=io.BytesIO(_run(clone, ("archive", "--format=tar", revision)))) as files:
        files.extractall(folder, filter="data")


def newest_tag_below(clone: Path) -> str | None:
    """The tag of the release before the commit that is checked out; None: there was no release, or this is no clone."""
    if not (clone / ".git").exists():
        return None
    newest_first = ("-c", "versionsort.suffix=rc", "tag", "--sort=-version:refname")
    below = ("--list", "v[0-9]*", "--merged", "HEAD", "--no-contains", "HEAD")
    return next(iter(git(clone, *newest_first, *below).splitlines()), None)


def _run(clone: Path, words: tuple[str, ...]) -> bytes:
    return subprocess.run(["git", "-C", str(clone), *words], check=True, stdout=subprocess.PIPE).stdout  # noqa: S603, S607 - any git
