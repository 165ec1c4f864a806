"""The wheel holds all that is needed to run: SQL, migrations, and the marker of typed packages.

Python that is started in a clone, without an installed package, says what happened and what to do.
"""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = {"pgqueue": "pgqueue", "migrations": "pgqueue/migrations", "sql": "pgqueue/sql"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that nothing is left in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "out", folder],
        check=True,
        timeout=110,
    )
    (built,) = (folder / "out").glob("*.whl")
    return built


@pytest.mark.parametrize("name", SHIPPED)
def test_every_source_file_is_in_the_wheel_at_its_place(wheel: Path, name: str) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"{SHIPPED[name]}/{file.relative_to(ROOT / name)}"
        for file in (ROOT / name).rglob("*")
        if file.suffix in {".py", ".sql"} or file.name == "py.typed"
    }

    assert wanted
    assert wanted <= inside


def test_the_wheel_works_without_the_tree(wheel: Path) -> None:
    program = (
        "import pgqueue, pgqueue.migrations.versions; from pgqueue.store import catalogue; from pgqueue.store.schema import schema; "
        "assert b'jobs' in catalogue.catalogue_of('pgqueue')['jobs/claim']; schema.upgrade_script(); print(pgqueue.__file__)"
    )

    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(_unpacked(wheel))!r}); {program}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=wheel.parent,
    )

    assert ended.returncode == 0, ended.stderr
    assert "create table pgqueue.jobs (" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith(str(wheel.parent))


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in zipfile.ZipFile(wheel).namelist()} == {
        "pgqueue",
        "pgqueue_jobs",
    }


def _unpacked(wheel: Path) -> Path:
    """The wheel's files as an installer would lay them out; found before any editable install."""
    folder = wheel.parent / "unpacked"
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dependencies")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "pgqueue" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize(
    "program",
    [
        "from pgqueue import PgQueue; PgQueue('postgresql://nowhere')",
        "from pgqueue.store.schema.schema import upgrade_script; upgrade_script()",
        "from pgqueue import __version__",
        "from pgqueue.cli.main import main",
    ],
)
def test_a_clone_that_is_not_installed_says_to_install_it(
    program: str, dependencies: Path, tmp_path: Path
) -> None:
    (tmp_path / "pgqueue").symlink_to(ROOT / "pgqueue")
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({str(dependencies)!r})"
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-S", "-c", f"{path}; {program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: Python found pgqueue in the folder {tmp_path}, ")
    assert "pip install -e ." in last
