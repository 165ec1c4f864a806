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
from release import stranger
from release.steps import run

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
    build = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('out')"]
    subprocess.run(build, cwd=folder, check=True, capture_output=True, timeout=110)  # noqa: S603 - our own words
    (built,) = (folder / "out").glob("*.whl")
    return built


@pytest.mark.parametrize("name", SHIPPED)
def test_every_file_is_in_the_wheel_at_its_place(wheel: Path, name: str) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"{SHIPPED[name]}/{file.relative_to(ROOT / name)}"
        for file in (ROOT / name).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }

    assert wanted
    assert wanted <= inside


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; the packages that it needs are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    programs = stranger.environment(folder)
    install = ["install", "--quiet", "--no-compile", "--no-deps", "--no-index"]
    run(sys.executable, "-m", "pip", "--python", folder, *install, wheel)
    (packages,) = folder.glob("lib/*/site-packages")
    # Found after the wheel, and without what an editable install has there: Python reads no .pth file of such a folder.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def test_a_user_who_has_only_the_wheel_migrates_and_runs_a_worker(
    programs: Path, empty_dsn: str, tmp_path: Path
) -> None:
    user = stranger.Stranger(programs, tmp_path, empty_dsn)
    stranger.is_installed(user)
    stranger.migrates(user)
    stranger.starts_quickly(user, ROOT / "README.md")


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in zipfile.ZipFile(wheel).namelist()} == {
        "pgqueue",
        "pgqueue_jobs",
    }


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
        "from pgqueue.cli.main import main; main(['queues', 'list', '--dsn', 'postgresql://nowhere'])",
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
