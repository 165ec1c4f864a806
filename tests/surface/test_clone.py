"""Python that is started in a clone, without an installed package, says what happened and what to do."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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
