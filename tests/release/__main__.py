"""A release: built from the commit that is checked out, checked, and tried by a user who has nothing else: `make release`.

Nothing is tagged or uploaded: the last lines say what the owner of the repository and of the name on the index does.
"""

import shutil
import tempfile
from pathlib import Path

import click
import psycopg
from psycopg.conninfo import make_conninfo
from release import artefacts, stranger
from release.artefacts import Tools
from release.steps import step
from release.stranger import Stranger
from release.tree import Release, ReleaseRefused, release_of, stage
from store import former

from pgqueue.embedded import embedded_server
from pgqueue.values.hints import DISTRIBUTION

CLONE = Path(__file__).parents[2]
DIST = CLONE / "dist"
TRIED = ("embedded", "dashboard", "django")
"""The extras that the user tries."""
CHECKERS = ("mypy", "pyright")


@click.command()
@click.option("--url", required=True, help="The page where the repository is published.")
@click.option("--extras", required=True, help="Those of which the list of packages is made.")
@click.option("--tools", type=click.Path(exists=True, path_type=Path), required=True)
def main(*, url: str, extras: str, tools: Path) -> None:
    """Build, check and try a release; what has passed is in the folder dist."""
    release = release_of(CLONE, url)
    click.echo(f"{DISTRIBUTION} {release.version}, commit {release.commit[:12]}")
    with tempfile.TemporaryDirectory(prefix="pgqueue-release-") as temporary:
        folder = Path(temporary).resolve()
        tree, built = folder / "tree", folder / "dist"
        with step("the SQL statements of the release before"):
            _record()
        with step("the files of the commit, with addresses"):
            stage(release, CLONE, tree)
        programs = Tools(tools.absolute(), release.epoch)
        _build(programs, tree, built, release)
        _try(programs, tree, built, release, extras)
        artefacts.write_sums(built)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(built, DIST)
    _say_what_is_left(release)


def _record() -> None:
    release = former.former_release()
    if former.record():
        raise ReleaseRefused(
            f"the statements of {release} that this release changes were written to {former.RECORDED}: commit them, and run it again"
        )
    said = "there was none: nothing is recorded" if release is None else f"of {release}: as recorded"
    click.echo(f"          {said}")


def _build(tools: Tools, tree: Path, built: Path, release: Release) -> None:
    with step("a wheel and a source distribution, from the files of the commit"):
        artefacts.build(tools, _copy(tree), built, "--sdist", "--wheel")
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with step("the source distribution has each file of the commit, and no other"):
        source = artefacts.unpacked(sdist, built.parent)
        artefacts.check_sdist(source, tree)
    with step("a wheel that is built from the source distribution is the same"):
        again = artefacts.build(tools, source, built.parent / "again", "--wheel")
        artefacts.check_same(wheel, again / wheel.name)
    with step("the index takes both, and knows the classifiers; the wheel is typed"):
        artefacts.check_metadata(tools, [wheel, sdist], tree)
        artefacts.check_typed(wheel)
    with step("each link of the index's page leads to a file of the release, or elsewhere"):
        artefacts.check_links(tools, wheel, tree, release)


def _copy(tree: Path) -> Path:
    """Another folder with the same files: setuptools leaves files of its own where it builds."""
    return Path(shutil.copytree(tree, tree.with_name("source")))


def _try(tools: Tools, tree: Path, built: Path, release: Release, extras: str) -> None:
    """Try the wheel as a user; the list of packages is of the environment before the user's own packages are in it."""
    programs = stranger.environment(built.parent / "environment")
    (wheel,) = built.glob("*.whl")

    def install(wanted: str, *more: str) -> None:
        tools.run("pip", "--python", programs / "python", "install", "--quiet", f"{wheel}[{wanted}]", *more)

    with step(f"the wheel in a clean environment, with {extras.replace(',', ', ')}"):
        install(extras)
    with step("the list of its packages (CycloneDX)"):
        artefacts.write_packages(tools, tree, programs, built / f"{DISTRIBUTION}-{release.version}.cdx.json")
    with step(f"what is tried with it: {', '.join((*TRIED, *CHECKERS))}"):
        install(",".join(TRIED), *CHECKERS)
    with embedded_server() as server:
        _use(programs, tree, built.parent, server)


def _use(programs: Path, tree: Path, folder: Path, server: str) -> None:
    def user(name: str) -> Stranger:
        (folder / name).mkdir()
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {name}".encode())
        return Stranger(programs, folder / name, make_conninfo(server, dbname=name))

    shop, site = user("shop"), user("site")
    with step("Python imports it from there"):
        stranger.is_installed(shop)
    with step("pgqueue demo"):
        stranger.sees_the_demo(shop)
    with step("pgqueue migrate and migrate --check, on an empty database"):
        stranger.migrates(shop)
    with step("the README's quick start, and a worker"):
        stranger.starts_quickly(shop, tree / "README.md")
    with step("the dashboard's first page"):
        stranger.opens_the_dashboard(shop)
    with step("a Django project: migrate, enqueue in a transaction, worker, admin"):
        stranger.has_a_django_project(site, tree / "docs" / "start" / "django.md")
    with step("mypy and pyright of a user's file: one right file, and one with errors"):
        stranger.checks_types(shop)


def _say_what_is_left(release: Release) -> None:
    click.echo(f"\nIn dist: {', '.join(sorted(file.name for file in DIST.iterdir()))}")
    if not release.dated:
        click.echo(
            f"This was a rehearsal: CHANGELOG.md says that {release.version} is unreleased. Write the date there, commit, and run it again."
        )
        return
    click.echo(
        "The owner publishes it:\n"
        f"  git tag --annotate {release.tag} --message '{DISTRIBUTION} {release.version}' {release.commit}\n"
        f"  git push {release.url} {release.tag}\n"
        "  twine upload dist/*.whl dist/*.tar.gz"
    )


if __name__ == "__main__":
    main()
