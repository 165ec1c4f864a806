"""Calls of the example shop, and their outcomes: a program that is run beside it, on Celery and on pgqueue.

The words after its name: ``celery`` or ``pgqueue``.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))


def outcome(result: Any) -> Any:
    try:
        return result.get(timeout=30)
    except Exception as error:
        return "no pan at the supplier" in str(error)


def main(system: str) -> None:
    from shop import tasks  # type: ignore[import-not-found]  # noqa: PLC0415 - it lies in the current folder
    from shop.app import app  # type: ignore[import-not-found]  # noqa: PLC0415

    names = [name for name in app.tasks if name.startswith("shop.")]
    working: Any = nullcontext()
    if system == "celery":
        from celery.contrib.testing.worker import start_worker  # noqa: PLC0415

        working = start_worker(app, pool="solo", perform_ping_check=False, queues=["shop", "mail"])
    with working:
        made = {
            "bought": tasks.buy("kettle", "ann", "ann@shop"),
            "counted": tasks.count("cup", ["north", "south"]),
            "delivered": tasks.deliver(7, ["kettle", "cup"], "5 High St"),
            "not delivered": tasks.deliver_from_supplier(8, ["pan", "cup"]),
            "recounted": tasks.recount("cup"),
            "alone": tasks.with_tax.delay(1000),
            "by name": app.send_task("shop.tasks.report", ("today",)),
            "eager": tasks.buy_now("cup", "bob"),
        }
        if system == "pgqueue":
            worker = [sys.executable, "-m", "pgqueue", "--app", "shop.app:app", "worker", "--until-empty"]
            ended = subprocess.run(worker, check=False, timeout=60)  # noqa: S603 - our own words
            assert ended.returncode == 3, "no job is dead"
        found = {name: outcome(result) for name, result in made.items()}
        deadline = time.monotonic() + 30
        while len(lines := sorted(Path(os.environ["JOURNAL"]).read_text().splitlines())) < 3:
            assert time.monotonic() < deadline, lines
            time.sleep(0.05)
    print(json.dumps({"results": found, "journal": lines, "tasks": len(names)}))


if __name__ == "__main__":
    main(sys.argv[1])
