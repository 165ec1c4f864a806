"""What `make release` refuses, what it builds from, and what it checks; the whole of it needs the network and some minutes."""

import gzip
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from release import artefacts
from release.clone import git
from release.steps import CheckFailed, run, step
from release.stranger import IGNORED, TYPED
from release.tree import Release, ReleaseRefused, release_of, stage, with_addresses
from store import former
from store.releases import refused

ROOT = Path(__file__).parents[2]
URL = "https://git.example.com/tools/pgqueue"
RELEASE = Release(url=URL, version="1.0.0", commit="c0ffee", epoch=1_700_000_000, dated=True)
PROJECT = """[project]
name = "pgqueue-jobs"
version = "1.0.0"
readme = "README.md"

[project.scripts]
pgqueue = "pgqueue:main"
"""


def commit(clone: Path, *tags: str) -> None:
    """Commit all files of a clone, and tag the commit."""
    git(clone, "add", "--all")
    git(
        clone,
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=ann@example.com",
        "commit",
        "--quiet",
        "--allow-empty",
        "-m",
        "x",
    )
    for tag in tags:
        git(clone, "tag", tag)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small clone, of which everything is committed."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "CHANGELOG.md").write_text("# Changes\n\n## 1.0.0, 2030-01-01\n")
    (folder / "README.md").write_text("[Changes](CHANGELOG.md)\n")
    commit(folder)
    return folder


def describe_another(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text("## 1.030\n\n## 1.0.00\n")
    commit(clone)


def tag_and_go_on(clone: Path) -> None:
    git(clone, "tag", "v1.0.0")
    commit(clone)


@pytest.mark.parametrize(
    ("url", "do", "words"),
    [
        ("", lambda _: None, "give the page where yours is published, make release URL="),
        ("http://git.example.com/tools/pgqueue", lambda _: None, "is not the address of a repository"),
        ("https://git.example.com", lambda _: None, "is not the address of a repository"),
        (URL, lambda clone: (clone / "new.py").touch(), "commit or remove them\n?? new.py"),
        (URL, lambda clone: (clone / "README.md").write_text("x"), "commit or remove them\n"),
        (URL, describe_another, "no heading `## 1.0.0`"),
        (URL, tag_and_go_on, "the tag v1.0.0 is on the commit"),
    ],
)
def test_a_release_is_refused(clone: Path, url: str, do: Callable[[Path], None], words: str) -> None:
    do(clone)
    with pytest.raises(ReleaseRefused) as raised:
        release_of(clone, url)
    assert words in raised.value.message


@pytest.mark.parametrize(
    ("heading", "dated"), [("1.0.0", True), ("1.0.0, 2030-01-01", True), ("1.0.0, unreleased", False)]
)
def test_a_release_is_the_commit_with_its_version(clone: Path, heading: str, dated: bool) -> None:  # noqa: FBT001 - a parameter of the test
    (clone / "CHANGELOG.md").write_text(f"## {heading}\n")
    commit(clone, "v1.0.0")
    release = release_of(clone, f"{URL}.git/")
    assert (release.url, release.tag, release.dated) == (URL, "v1.0.0", dated)
    assert release.commit == git(clone, "rev-parse", "v1.0.0")


def test_a_release_has_the_files_of_the_commit_with_addresses(clone: Path, tmp_path: Path) -> None:
    release = release_of(clone, URL)
    (clone / "ignored").touch()
    stage(release, clone, tmp_path / "tree")

    tree = tmp_path / "tree"
    assert artefacts.files_below(tree) == {"README.md", "README.index", "CHANGELOG.md", "pyproject.toml"}
    assert (tree / "README.md").read_bytes() == (clone / "README.md").read_bytes()
    assert (tree / "README.index").read_text() == f"[Changes]({URL}/blob/v1.0.0/CHANGELOG.md)\n"
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    assert project.pop("urls") == {
        "Homepage": URL,
        "Documentation": f"{URL}/blob/v1.0.0/docs/README.md",
        "Changelog": f"{URL}/blob/v1.0.0/CHANGELOG.md",
        "Issues": f"{URL}/issues",
        "Source": URL,
        "Security": f"{URL}/blob/v1.0.0/SECURITY.md",
    }
    assert project.pop("readme") == {"file": "README.index", "content-type": "text/markdown"}
    assert project | {"readme": "README.md"} == tomllib.loads(PROJECT)["project"]


@pytest.mark.parametrize("line", ["[project.scripts]", 'readme = "README.md"'])
def test_a_project_without_a_place_for_the_addresses_is_refused(
    clone: Path, tmp_path: Path, line: str
) -> None:
    (clone / "pyproject.toml").write_text(PROJECT.replace(line, "[project.gui-scripts]"))
    commit(clone)
    with pytest.raises(ReleaseRefused, match="addresses are written there") as raised:
        stage(release_of(clone, URL), clone, tmp_path / "tree")
    assert line in raised.value.message


def test_each_link_of_the_readme_names_a_file_of_the_release() -> None:
    page = with_addresses((ROOT / "README.md").read_text(), RELEASE)
    targets = {found["target"] for found in re.finditer(r"\]\((?P<target>[^)\s]+)\)", page)}
    assert len(targets) > 50
    assert [one for one in targets if not artefacts.leads_somewhere(one, ROOT, RELEASE)] == []


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("[a](docs/a.md)", f"[a]({URL}/blob/v1.0.0/docs/a.md)"),
        ("[a](docs/a.md#b)", f"[a]({URL}/blob/v1.0.0/docs/a.md#b)"),
        ("[a](#b)", f"[a]({URL}/blob/v1.0.0/README.md#b)"),
        ("![a](docs/a.png)", f"![a]({URL}/raw/v1.0.0/docs/a.png)"),
        ("[a](https://example.com/a.md)", "[a](https://example.com/a.md)"),
        ("[a](mailto:ann@example.com)", "[a](mailto:ann@example.com)"),
        (
            "```md\n[a](docs/a.md)\n```\n[`b`](b.md)",
            f"```md\n[a](docs/a.md)\n```\n[`b`]({URL}/blob/v1.0.0/b.md)",
        ),
    ],
)
def test_a_relative_link_becomes_an_address(link: str, target: str) -> None:
    assert with_addresses(link, RELEASE) == target


@pytest.mark.parametrize(
    ("link", "leads"),
    [
        (f"{URL}/blob/v1.0.0/README.md#what-it-does", True),
        (f"{URL}/raw/v1.0.0/docs", True),
        (f"{URL}/blob/v1.0.0/docs/nothing.md", False),
        ("https://example.com", True),
        ("docs/README.md", False),
        ("#what-it-does", False),
    ],
)
def test_a_link_of_the_index_names_a_file_of_the_release(link: str, leads: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert artefacts.leads_somewhere(link, ROOT, RELEASE) is leads


def test_the_links_of_a_page_are_its_addresses_and_images_without_its_own_headings() -> None:
    page = (
        '<h1><a id="one" href="#one">One</a></h1><a href="a.md">a</a><img src="a.png"><a href="#two">two</a>'
    )
    assert artefacts.links_of(page) == {"a.md", "a.png", "#two"}


def packed(folder: Path, files: dict[str, bytes], *, mtime: int, mode: int) -> Path:
    folder.mkdir()
    file = folder / "p-1.tar.gz"
    with gzip.open(file, "wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"p-1/{name}")
            member.size, member.mtime, member.mode, member.uname = len(content), mtime, mode, folder.name
            archive.addfile(member, io.BytesIO(content))
    return file


def test_an_archive_is_the_same_whoever_packs_it_and_when(tmp_path: Path) -> None:
    files = {"a": b"1", "b": b"2"}
    one = packed(tmp_path / "ann", files, mtime=1, mode=0o644)
    other = packed(tmp_path / "bob", dict(reversed(files.items())), mtime=2, mode=0o664)
    assert one.read_bytes() != other.read_bytes()
    for sdist in (one, other):
        artefacts.pack_again(sdist, 1_700_000_000)
    assert one.read_bytes() == other.read_bytes()
    assert (artefacts.unpacked(one, tmp_path) / "b").read_bytes() == b"2"


def test_a_source_distribution_has_each_file_of_the_commit_and_no_other(tmp_path: Path) -> None:
    tracked, made = tmp_path / "tracked", tmp_path / "made"
    for folder in (tracked, made, made / "p.egg-info"):
        folder.mkdir()
        (folder / "README.md").touch()
    (made / "PKG-INFO").touch()
    artefacts.check_sdist(made, tracked)

    (tracked / "SECURITY.md").touch()
    with pytest.raises(CheckFailed, match=r"are missing; .*\n  SECURITY\.md"):
        artefacts.check_sdist(made, tracked)
    (made / "SECURITY.md").touch()
    (made / "secret").touch()
    with pytest.raises(CheckFailed, match="not in git:\n  secret"):
        artefacts.check_sdist(made, tracked)


def test_two_wheels_with_another_content_or_file_are_not_the_same(tmp_path: Path) -> None:
    for name, files in {"one": {"a": "1", "b": "2"}, "other": {"a": "1", "b": "3", "c": "4"}}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            for file, content in files.items():
                wheel.writestr(file, content)
    artefacts.check_same(tmp_path / "one", tmp_path / "one")
    with pytest.raises(CheckFailed, match=r"differ:\n  b\n  c$"):
        artefacts.check_same(tmp_path / "one", tmp_path / "other")
    with pytest.raises(CheckFailed, match=r"has no file:\n  pgqueue/py\.typed"):
        artefacts.check_typed(tmp_path / "one")


def test_the_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("1")
    artefacts.write_sums(tmp_path)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)  # noqa: S607 - any
    assert "a.whl" in (tmp_path / "SHA256SUMS").read_text()


def test_a_step_that_fails_prints_what_its_command_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with step("passes"):
        pass
    assert re.fullmatch(r" *\d+\.\d s  passes\n", capsys.readouterr().out)
    program = "import sys; print('said'); print('complained', file=sys.stderr); sys.exit(3)"
    with pytest.raises(click.ClickException) as raised, step("fails"):
        run(sys.executable, "-c", program)
    assert raised.value.message.startswith("failed: fails\n")
    assert raised.value.message.endswith("ended with exit code 3\nsaid\ncomplained\n")
    with pytest.raises(click.ClickException, match="failed: checks\nfiles:\n  a"), step("checks"):
        raise CheckFailed("files", ["a"])
    assert capsys.readouterr().out == ""


def test_the_file_of_types_has_planted_errors() -> None:
    assert len(IGNORED.findall(TYPED.read_text())) > 5


@pytest.fixture
def two_releases(tmp_path: Path) -> Path:
    """A clone whose second release has changed a statement, a list of columns and nothing else of the first, lost one and got one."""
    clone = tmp_path / "clone"
    for name in ("pgqueue", "sql", "migrations"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "tests" / "store").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "store" / "sqlfiles.py", clone / "tests" / "store")
    git(clone, "init", "--quiet")
    changed, gone, new = (clone / "sql" / "queues" / f"{name}.sql" for name in ("changed", "gone", "new"))
    changed.write_text("-- queues/changed: a header.\nselect 1\n")
    gone.write_text("select gone from pgqueue.queues\n")
    (clone / "sql" / "queues" / "listed.sql").write_text("select {dead as ended} from pgqueue.dead_jobs\n")
    (clone / "sql" / "queues" / "headed.sql").write_text("-- queues/headed: a header.\nselect 3\n")
    commit(clone, "v0.1.0")
    changed.write_text("-- queues/changed: a header.\nselect 2\n")
    gone.unlink()
    new.write_text("select new from pgqueue.queues\n")
    (clone / "sql" / "queues" / "headed.sql").write_text("-- queues/headed: another header.\nselect 3\n")
    lists = clone / "pgqueue" / "store" / "column_lists.py"
    lists.write_text(lists.read_text().replace("""outcome="'dead'::text\"""", """outcome="'died'::text\""""))
    commit(clone)
    return clone


def test_a_release_records_the_statements_of_the_former_that_it_changed_or_lost(
    two_releases: Path, dsn: str
) -> None:
    now = former.statements_at(two_releases, git(two_releases, "rev-parse", "HEAD"))
    assert former.former_release(two_releases) == "0.1.0"
    found = former.former_statements(now, two_releases)
    assert {"queues/changed", "queues/gone", "queues/listed"} <= set(found)
    assert {name for name in found if "'dead'::text as outcome" not in found[name]} == {
        "queues/changed",
        "queues/gone",
    }
    assert found["queues/changed"] == "select 1\n"
    assert set(refused(dsn, found)) == {"queues/gone"}  # the schema of the second has no such column

    assert former.record(two_releases)
    recorded = two_releases / former.RECORDED / "0.1.0"
    assert former.statements_of(recorded) == found
    commit(two_releases, "v0.2.0")
    assert not former.record(two_releases)  # on the tag, the release before is still the first

    shutil.copytree(
        two_releases, files := two_releases.with_name("files"), ignore=shutil.ignore_patterns(".git")
    )
    assert former.former_release(files) == "0.1.0"
    assert former.former_statements(now, files) == found

    commit(two_releases)  # changes no statement
    assert former.former_release(two_releases) == "0.2.0"
    assert former.record(two_releases)
    assert not (two_releases / former.RECORDED).exists()


def test_the_release_before_is_the_one_with_the_highest_version_below_the_commit(clone: Path) -> None:
    commit(clone, "v0.10.0rc1", "vision", "v0.9.0")
    assert former.former_release(clone) is None
    commit(clone, "v0.10.0")
    assert former.former_release(clone) == "0.10.0rc1"
    commit(clone)
    assert former.former_release(clone) == "0.10.0"


def test_before_the_first_release_nothing_is_recorded(clone: Path) -> None:
    assert former.former_release(clone) is None
    assert not former.record(clone)
