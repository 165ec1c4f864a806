"""Encryption: known answers, what a text is bound to, keys, rotation, and that nothing can be read without the keys."""

import base64
import json
import logging
import re
import subprocess
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cli.commands import pgqueue, printed
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from dashboard.people import Person
from looking import ask, until
from pyarrow import parquet
from running import Running
from tenacity import RetryCallState, wait_fixed
from worker.helping import ended

from pgqueue import Context, JobHandle, JobPart, JobState, Limit, PgQueue, Retry, Unique
from pgqueue.cli.logs import LineFormatter
from pgqueue.dashboard import Dashboard, Right, User
from pgqueue.embedded import embedded_binaries
from pgqueue.encryption import AesGcm, KeyRing, Keys
from pgqueue.encryption.keys import Sealer
from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable
from pgqueue.testing import drain

ONE, TWO, LOOKUP = (bytes([number]) * 32 for number in (1, 2, 3))
WORD = "Zaphod-Beeblebrox"
TENANT_WORD = {"acme": f"{WORD}-acme", "globex": f"{WORD}-globex"}
PART = JobPart("args", "bill", '{"tenant": "acme"}')


def keys(**names: bytes) -> Keys:
    return Keys(KeyRing(names), lookup=LOOKUP)


@pytest.mark.parametrize(  # of https://c2sp.org/XAES-256-GCM
    ("key", "bound", "sealed"),
    [
        (ONE, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (
            bytes([3]) * 32,
            b"c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
        ),
    ],
)
def test_it_is_xaes_256_gcm(key: bytes, bound: bytes, sealed: str) -> None:
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert Sealer(key).open(nonce + bytes.fromhex(sealed), bound) == b"XAES-256-GCM"


def independently_decrypted(text: str, key: bytes, *bound: str | None) -> bytes:
    """What a stored text holds, by the words of the guide and nothing of pgqueue's."""
    version, ring, name, data = text.split(":")
    sealed = base64.b64decode(data)
    message_key = b""
    for place in (1, 2):
        derived = CMAC(AES(key))
        derived.update(bytes((0, place, 0x58, 0)) + sealed[:12])
        message_key += derived.finalize()
    said = json.dumps([version, ring, name, *bound], separators=(",", ":")).encode()
    return AESGCM(message_key).decrypt(sealed[12:24], sealed[24:], said)


def test_what_is_stored_is_decrypted_by_cryptography_alone(dsn: str) -> None:
    queue = PgQueue(dsn, codec=AesGcm(keys(new=ONE, old=TWO)))
    queue.task(name="bill")(later).enqueue(WORD)
    ((stored,),) = ask(dsn, "select args->>'$encoded' from pgqueue.jobs")
    assert independently_decrypted(stored, ONE, "args", "bill", None) == b'{"card":"%s"}' % WORD.encode()
    queue.close()


def test_threads_encrypt_at_once_and_no_two_texts_are_equal() -> None:
    codec, texts = AesGcm(keys(k=ONE)), list[str]()

    def encrypt() -> None:
        texts.extend(codec.encode(b'{"n": 1}', PART) for _ in range(500))

    threads = [Thread(target=encrypt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts)) == 2000
    assert {codec.decode(text, PART) for text in texts} == {b'{"n": 1}'}


def _flipped(text: str) -> str:
    head, _, data = text.rpartition(":")
    sealed = bytearray(base64.b64decode(data))
    sealed[30] ^= 1
    return f"{head}:{base64.b64encode(sealed).decode()}"


CHANGED: dict[str, tuple[Callable[[str], str], JobPart]] = {
    "bit": (_flipped, PART),
    "cut": (lambda text: text[:-8], PART),
    "short": (lambda text: text[:20], PART),
    "kind": (str, JobPart("result", "bill", PART.meta)),
    "task": (str, JobPart("args", "mail", PART.meta)),
    "tenant": (str, JobPart("args", "bill", '{"tenant": "globex"}')),
    "no_tenant": (str, JobPart("args", "bill")),
    "ring": (lambda text: text.replace(":t:", ":s:"), PART),
    "key": (lambda text: text.replace(":one:", ":two:"), PART),
    "unknown_key": (lambda text: text.replace(":one:", ":gone:"), PART),
    "empty": (lambda _: "", PART),
    "hostile": (lambda _: "x1:t:\x00\ud800'\"<script>:====", PART),
}


@pytest.mark.parametrize("which", CHANGED)
def test_a_text_that_was_changed_or_moved_does_not_decrypt_and_no_error_has_key_or_data(which: str) -> None:
    ring = KeyRing({"one": ONE, "two": ONE})
    codec = AesGcm(Keys(ring, lookup=LOOKUP, tenants={"acme": ring, "globex": ring}), tenant="tenant")
    text = codec.encode(b'{"word": "%s"}' % WORD.encode(), PART)
    change, part = CHANGED[which]
    with pytest.raises(PayloadNotDecodable) as raised:
        codec.decode(change(text), part)
    told = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
    assert str(ONE)[2:20] not in told
    assert WORD not in told


GOOD = base64.b64encode(ONE).decode()
WRONG = "c2VjcmV0IGtleSBtYXRlcmlhbA=="


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no keys: set PGQUEUE_KEYS"),
        (WRONG.rstrip("="), "item 1 is no NAME=KEY"),
        (f"a={GOOD}", "there is no key 'lookup'"),
        (f"lookup={GOOD}", "a key ring needs a key"),
        (f"lookup={GOOD} a={WRONG}", "the key 'a' has 19 bytes, not 32"),
        (f"lookup={GOOD} a={WRONG}%", "the key 'a' is no base64"),
        (f"lookup={GOOD} a={GOOD} a={GOOD}", "two keys 'a'"),
        (f"lookup={GOOD} a:b={GOOD}", "letters, digits"),
        (f"lookup={GOOD} a={GOOD} acme/lookup={GOOD}", "the name 'lookup' is for"),
        (f"lookup={GOOD} a={GOOD} acme/k={GOOD}", "there are keys of tenants"),
    ],
)
def test_keys_that_are_wrong_say_what_to_do_and_are_not_quoted(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUE_KEYS", text)
    with pytest.raises(ConfigurationError, match=re.escape(why)) as raised:
        AesGcm()
    told = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    inside = [frame for frame in told.stack if "encryption/" in frame.filename]
    assert inside
    for shown in (str(raised.value), *(str(frame.locals) for frame in inside)):
        assert GOOD[:12] not in shown
        assert WRONG[:12] not in shown


def test_the_command_makes_keys_which_the_environment_and_a_file_take(tmp_path: Path) -> None:
    made = [
        pgqueue("keys", "new", *options.split()).stdout
        for options in ("", "--lookup", "--name old", "--tenant a/=,%", "--tenant globex --name 1")
    ]
    file = tmp_path / "keys"
    file.write_text("# newest first\n\n" + "".join(made))
    for env in ({"PGQUEUE_KEYS": ",".join(made)}, {"PGQUEUE_KEYS_FILE": str(file)}):
        listed = pgqueue("keys", "list", **env)
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        assert listed.stdout == f"shared: {today}, old\ntenant a/=,%: {today}\ntenant globex: 1\n"
    codec = AesGcm(Keys.from_file(file), tenant="tenant")
    assert "s:" in codec.encode(b"{}", JobPart("args", "t"))
    assert ":t:1:" in codec.encode(b"{}", JobPart("args", "t", {"tenant": "globex"}))
    with pytest.raises(PayloadNotEncodable, match="the tenant 'acme' has no keys here"):
        AesGcm(keys(k=ONE), tenant="tenant").encode(b"{}", PART)
    with pytest.raises(PayloadNotEncodable, match="names no tenant"):
        codec.encode(b"{}", JobPart("args", "t", {"tenant": 1.5}))
    with pytest.raises(ConfigurationError, match="No such file"):
        Keys.from_file(tmp_path / "none")


async def test_keys_rotate_while_jobs_wait_and_keys_stay_unique(dsn: str, running: Running) -> None:
    def of(**names: bytes) -> tuple[PgQueue, Any]:
        queue = PgQueue(dsn, codec=AesGcm(keys(**names)))

        @queue.task(name="echo", limit=Limit(1, by="word"), unique=Unique(by="word"))
        def echo(word: str) -> str:
            return word

        return queue, echo

    (former, old), (rotated, new) = of(a=ONE), of(b=TWO, a=ONE)
    waiting = old.enqueue(WORD)
    assert new.enqueue(WORD).id == waiting.id
    later = new.enqueue("other")
    lanes = ask(dsn, "select split_part(lane, ' ', 2), unique_key from pgqueue.jobs order by id")
    assert all(one.startswith("h1:") for lane in lanes for one in lane)
    async with running(rotated):
        await ended(rotated, waiting, later)
    assert rotated.result(waiting.id) == WORD
    assert rotated.job(waiting.id).args == {"word": WORD}
    assert former.job(later.id).args == {
        "(unreadable)": "echo: the codec failed to decode: it needs the key 'b'; here are a"
    }
    for queue in (former, rotated):
        queue.close()


def later(card: str) -> str:
    return card


def _broken(state: RetryCallState) -> float:
    assert state.outcome is not None
    raise LookupError(str(state.outcome.exception()))


class World:
    """A queue of two tenants with keys of their own, whose jobs hold the secret wherever a job can hold something."""

    def __init__(self, dsn: str) -> None:
        self.rings = {"acme": KeyRing({"1": bytes([7]) * 32}), "globex": KeyRing({"1": bytes([8]) * 32})}
        shared = Keys(KeyRing({"s": ONE}), lookup=LOOKUP, tenants=self.rings)
        self.queue = PgQueue(dsn, codec=AesGcm(shared, tenant="tenant"))
        self.jobs: dict[tuple[str, str], JobHandle[Any]] = {}

        @self.queue.task(name="charge", limit=Limit(1, by="card"), unique=Unique(by="card"))
        def charge(card: str) -> list[str]:
            return [card]

        @self.queue.task(name="fail", max_attempts=1)
        def fail(card: str) -> None:
            raise ValueError(card) from KeyError(card)

        @self.queue.task(name="again", retry=Retry(wait=wait_fixed(3600)))
        async def again(card: str) -> None:
            raise ValueError(card)

        @self.queue.task(name="odd", retry=Retry(wait=_broken))
        def odd(card: str) -> None:
            raise ValueError(card)

        @self.queue.task(name="lose")
        def lose(card: str) -> object:
            return type(card, (), {})()

        @self.queue.task(name="wait")
        def wait(ctx: Context, card: str) -> str:
            ctx.progress(1, 2, message=card)
            ctx.step("keep", lambda: card)
            ctx.wait_for("approved", timeout=3600)
            return card

        self.queue.task(name="later")(later)

    def enqueue(self) -> None:
        for tenant, word in TENANT_WORD.items():
            meta = {"tenant": tenant}
            for name in ("charge", "fail", "again", "odd", "lose", "wait"):
                self.jobs[tenant, name] = self.queue.tasks[name].using(meta=meta).enqueue(word)
            later = self.queue.tasks["later"].using(meta=meta, delay=timedelta(hours=1))
            self.jobs[tenant, "later"] = later.enqueue(word)
            nightly = self.queue.tasks["later"].using(meta=meta).call(word)
            self.queue.schedules.put(f"nightly {tenant}", nightly, "0 3 * * *")

    async def run(self, running: Running) -> None:
        """Run them, send a signal that no job reads, and bring what has ended to a day that can be exported."""
        of = self.jobs.items()
        async with running(self.queue):
            await ended(self.queue, *(job for (_, name), job in of if name in {"charge", "fail", "lose"}))
            await until(lambda: self.states("again") | self.states("odd") == {JobState.SCHEDULED})
            await until(lambda: self.states("wait") == {JobState.BLOCKED})
        for (_, name), job in of:
            if name == "wait":
                self.queue.signal(job, "other", {"said": WORD})
        ask(self.queue, "select pgqueue.ensure_history_days('2026-01-20', '2026-01-20')")
        ask(
            self.queue,
            "update pgqueue.job_history set finished_at = '2026-01-20T10:00Z', started_at = '2026-01-20T09:00Z'",
        )
        ask(self.queue, "update pgqueue.dead_jobs set died_at = '2026-01-20T10:00Z'")

    def states(self, name: str) -> set[JobState]:
        return {self.queue.job(job.id).state for (_, one), job in self.jobs.items() if one == name}


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    made = World(dsn)
    yield made
    made.queue.close()


def dumped(dsn: str) -> str:
    program = embedded_binaries() / "pg_dump"
    return subprocess.run(  # noqa: S603 - of the extra
        [program, "--inserts", dsn], check=True, capture_output=True, text=True
    ).stdout


def in_lake(lake: Path) -> str:
    """All text of every file of a lake."""
    tables = [parquet.read_table(path).to_pylist() for path in lake.rglob("*.parquet")]
    return str(tables) + "".join(path.read_text() for path in lake.rglob("*.json"))


def pages_without_keys(world: World, dsn: str) -> str:
    """What the dashboard shows of every job, schedule and key to who has all rights, in a program without the keys."""
    queue = PgQueue(dsn)
    person = Person(Dashboard(queue, login=lambda _: User.with_rights("ann", Right)))
    paths = [
        "/",
        "/jobs",
        "/dead",
        "/schedules",
        "/limits",
        *(f"/jobs/{job.id}" for job in world.jobs.values()),
    ]
    shown = [person.get(path, follow_redirects=True) for path in paths]
    queue.close()
    assert {one.status_code for one in shown} == {200}
    return "".join(one.text for one in shown)


async def test_nothing_can_be_read_without_the_keys_and_a_tenant_ends_with_its_key(
    world: World, dsn: str, running: Running, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(LineFormatter())
    world.enqueue()
    await world.run(running)
    lake = tmp_path / "lake"
    config = tmp_path / "pipeline.toml"
    config.write_text(f'lake = "{lake}"\n')
    for step in ("export", "verify", "rollup"):
        assert pgqueue("pipeline", step, "--config", str(config), dsn=dsn).exit_code == 0
    everywhere = {
        "dump": dumped(dsn),
        "log": caplog.text,
        "lake": in_lake(lake),
        "dashboard": pages_without_keys(world, dsn),
    }
    for place, text in everywhere.items():
        assert WORD not in text, place
        assert len(text) > 1000, place
    assert "builtins.ValueError (the codec hides its message; the job's record has it)" in caplog.text
    assert "raise ValueError(card) from KeyError(card)" in caplog.text

    assert everywhere["dump"].count("$encoded") >= 16

    read = world.queue
    read.tasks["odd"].using(queue="taken", meta={"tenant": "globex"}).enqueue(WORD)
    with pytest.raises(ValueError, match=WORD), read.take(1, queues=["taken"]):
        raise ValueError(WORD)
    assert caplog.text.count("LookupError (the codec hides") == 3
    assert WORD not in caplog.text
    for tenant, word in TENANT_WORD.items():
        assert read.job(world.jobs[tenant, "fail"].id).errors[0].message == word
    del world.rings["acme"]
    assert read.result(world.jobs["globex", "charge"].id) == [TENANT_WORD["globex"]]
    with pytest.raises(PayloadNotDecodable, match="the tenant 'acme' has no keys here"):
        read.result(world.jobs["acme", "charge"].id)
    with pytest.raises(PayloadNotEncodable, match="the tenant 'acme' has no keys here"):
        read.tasks["later"].using(meta={"tenant": "acme"}).enqueue("x")
    drain(read, now=datetime.now(UTC) + timedelta(hours=2), raises=False, queues=["default"])
    assert read.job(world.jobs["globex", "later"].id).state is JobState.SUCCEEDED
    lost = read.job(world.jobs["acme", "later"].id)
    assert (lost.state, lost.args["(unreadable)"][:40]) == (
        JobState.DEAD,
        "later: the codec failed to decode: the t",
    )

    erased = pgqueue(
        *("pipeline", "erase", "--config", str(config), "--where"),
        "meta->>'tenant' = 'acme'",
        "--json",
        dsn=dsn,
    )
    assert erased.exit_code == 0, erased.stderr
    left = [row for path in lake.rglob("ended/**/*.parquet") for row in parquet.read_table(path).to_pylist()]
    assert {json.loads(row["meta"])["tenant"] for row in left if row["meta"]} == {"globex"}


def test_the_command_counts_the_rows_that_need_each_key(dsn: str) -> None:
    def enqueue(codec: AesGcm, many: int, **options: Any) -> None:
        queue = PgQueue(dsn, codec=codec)
        work = queue.task(name="work")(lambda: None)
        queue.enqueue_many(work.using(**options).call() for _ in range(many))
        drain(queue, raises=False)
        queue.close()

    none = pgqueue("keys", "used", dsn=dsn)
    assert (none.stdout, none.stderr) == ("", "no row is encrypted\n")
    enqueue(AesGcm(keys(old=ONE)), 2)
    enqueue(AesGcm(keys(new=TWO)), 3, delay=60)
    enqueue(
        AesGcm(
            Keys(keys(new=TWO).ring, lookup=LOOKUP, tenants={"acme": keys(mine=ONE).ring}), tenant="tenant"
        ),
        1,
        meta={"tenant": "acme"},
    )
    assert printed(pgqueue("keys", "used", "--json", dsn=dsn)) == [
        {"table": "job_history", "ring": "s", "key": "old", "rows": 2},
        {"table": "job_history", "ring": "t", "key": "mine", "rows": 1},
        {"table": "jobs", "ring": "s", "key": "new", "rows": 3},
    ]
    line = pgqueue("keys", "used", dsn=dsn).stdout.splitlines()[1]
    assert line.split() == ["job_history", "shared", "old", "2"]
