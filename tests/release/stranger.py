"""A user who has only what is released: an environment of its own, a folder of its own, and no clone.

The user does what the pages show: the quick start of the README, the first lines of Django's page, the demo, the dashboard, and type
checks of a file. Each function is one of these; what went wrong ends a command with an exit code, or raises :class:`CheckFailed`.
"""

import json
import os
import re
import subprocess
import urllib.request
import venv
from dataclasses import dataclass
from pathlib import Path

from docs.pages import Block, blocks
from psycopg.conninfo import conninfo_to_dict
from release.steps import CheckFailed, run

OF_OTHERS = ("DATABASE_URL", "DJANGO", "PG", "PYTHON", "VIRTUAL_ENV")
"""How the names of environment variables begin that would lead to other code, or to another database."""
WHERE = "import pgqueue, sys; print(pgqueue.__file__); print(sys.prefix)"
TYPED = Path(__file__).with_name("typed.py")
IGNORED = re.compile(r"  # type: ignore\[[\w-]+\]$", re.MULTILINE)

DATABASE = """
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{dbname}", "HOST": "{host}", "PORT": "{port}", "USER": "{user}"}}}}
INSTALLED_APPS += ["shop"]
"""
BUY = """
from django.db import transaction
from shop.tasks import confirm

with transaction.atomic():
    confirm.enqueue(7)
try:
    with transaction.atomic():
        confirm.enqueue(8)
        raise LookupError
except LookupError:
    pass
"""
VISIT = """
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("ann"))
page = client.get(reverse("admin:pgqueue_job_changelist"))
assert page.status_code == 200, page.content
assert b"shop.tasks.confirm" in page.content, page.content
"""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Where the user works.

    Attributes:
        programs: the folder with the programs of the environment.
        folder: the current folder.
        dsn: an empty database.
    """

    programs: Path
    folder: Path
    dsn: str

    def run(self, program: str, *words: str | Path, folder: Path | None = None) -> str:
        """What a program of the environment prints."""
        return run(self.programs / program, *words, cwd=folder or self.folder, env=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """The variables: those of this process that do not concern Python or databases, and the database."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(OF_OTHERS)}
        path = f"{self.programs}{os.pathsep}{os.defpath}"
        return {
            **own,
            "PATH": path,
            "PGQUEUE_DSN": self.dsn,
            "PYTHONNOUSERSITE": "1",
            "PYTHONUNBUFFERED": "1",
        }


def environment(folder: Path) -> Path:
    """Make an empty virtual environment; the folder with its programs."""
    venv.create(folder, symlinks=True)
    return folder / "bin"


def is_installed(user: Stranger) -> None:
    """Python imports the package from the environment, and the package says that it is typed."""
    module, prefix = user.run("python", "-c", WHERE).splitlines()
    if not module.startswith(f"{prefix}/") or not Path(module).with_name("py.typed").exists():
        raise CheckFailed("Python imports another package, or one without py.typed", [module])


def migrates(user: Stranger) -> None:
    """The tables are made in an empty database, and fit."""
    user.run("pgqueue", "migrate")
    user.run("pgqueue", "migrate", "--check")


def starts_quickly(user: Stranger, page: Path) -> None:
    """The files of the quick start do what the page shows, and a worker runs the job."""
    for name in ("shop/jobs.py", "buy.py"):
        _save(user.folder / name, _shown(page, name).code)
    _expect(user.run("python", "buy.py"), "ready")
    user.run("pgqueue", "worker", "--app", "shop.jobs:queue", "--until-empty")
    (job,) = json.loads(user.run("pgqueue", "jobs", "list", "--json"))
    _expect(job["state"], "succeeded")


def sees_the_demo(user: Stranger) -> None:
    """The demo starts a server of its own, and loses no job."""
    alone = {name: value for name, value in user.environment.items() if name != "PGQUEUE_DSN"}
    run(user.programs / "pgqueue", "demo", cwd=user.folder, env=alone)


def opens_the_dashboard(user: Stranger) -> None:
    """The first page of the dashboard is there."""
    words = [str(user.programs / "pgqueue"), "dashboard", "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - our own words
        words, cwd=user.folder, env=user.environment, text=True, stdout=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            address = re.search(r"http://\S+/", said)
            if address is None:
                raise CheckFailed("the dashboard did not start", [said])
            with urllib.request.urlopen(address[0], timeout=60) as answer:  # noqa: S310 - a server of ours
                page = answer.read().decode()
        finally:
            server.terminate()
    if not re.search(r"<title>[^<]*pgqueue[^<]*</title>", page):
        raise CheckFailed("the first page has another title", [page])


def has_a_django_project(user: Stranger, page: Path) -> None:
    """A new project with the first lines of Django's page: migrate, enqueue in a transaction, run a worker, look at the admin."""
    project = user.folder / "mysite"
    user.run("django-admin", "startproject", "mysite")
    user.run("python", "manage.py", "startapp", "shop", folder=project)
    settings = project / "mysite" / "settings.py"
    added = DATABASE.format_map({"port": "", "user": "", **conninfo_to_dict(user.dsn)})
    _save(settings, settings.read_text() + added + _shown(page, "mysite/settings.py").code)
    _save(project / "shop" / "tasks.py", _shown(page, "shop/tasks.py").code)

    def managed(*words: str) -> str:
        return user.run("python", "manage.py", *words, folder=project)

    managed("migrate")
    managed("shell", "-c", BUY)
    _expect(managed("pgqueue", "worker", "--until-empty", "--no-reload"), "confirmed 7")
    managed("shell", "-c", VISIT)


def checks_types(user: Stranger) -> None:
    """mypy and pyright accept a right file, and find each error that is planted in a copy of it, and no other."""
    text = TYPED.read_text(encoding="utf-8")
    planted = [str(number) for number, line in enumerate(text.splitlines(), 1) if IGNORED.search(line)]
    _save(user.folder / "right.py", text)
    _save(user.folder / "wrong.py", IGNORED.sub("", text))
    expected = {("wrong", line) for line in planted}
    for words in (("mypy", "--strict"), ("pyright",)):
        output = _output(user, *words, "right.py", "wrong.py")
        found = set(re.findall(r"\b(right|wrong)\.py:(\d+):.*\berror\b", output))
        if found != expected:
            wrong = [f"{name}.py:{line}" for name, line in sorted(found ^ expected)]
            raise CheckFailed(f"{words[0]} finds too much or too little here", [*wrong, output])


def _output(user: Stranger, program: str, *words: str) -> str:
    """What a program prints, whatever it thinks of it."""
    try:
        return user.run(program, *words)
    except subprocess.CalledProcessError as error:
        return f"{error.stdout}{error.stderr}"


def _shown(page: Path, name: str) -> Block:
    return next(block for block in blocks(page) if block.word == "file" and block.argument == name)


def _save(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _expect(printed: str, expected: str) -> None:
    if printed.strip() != expected:
        raise CheckFailed(f"it prints something else than {expected!r}", [printed])
