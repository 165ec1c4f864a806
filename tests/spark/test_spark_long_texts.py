"""Promise 11, length, in the lake: a long text of a job is exported and verified whole, and costs no more than its length."""

import json
from pathlib import Path
from typing import Any

import pytest
from looking import ask, calls_while
from spark.lake_history import DAY, ended, no_session

from pgqueue import PgQueue
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import verify

SIZES = (64_000, 16_000_000)
TEXTS = {"hex": "0123456789abcdef", "lines": "\n", "controls": "\x1b[31m\u202e", "quotes": '\\"'}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_job_with_a_long_text_is_in_the_lake_as_it_was_and_takes_no_more_calls(
    queue: PgQueue, dsn: str, tmp_path: Path, kind: str
) -> None:
    first, *_ = ended(dsn, DAY, 3)
    counts = list[int]()
    for size in SIZES:
        text = TEXTS[kind] * (size // len(TEXTS[kind]) // 2)
        ask(
            dsn,
            "update pgqueue.job_history set args = json_build_object('text', %s::text), result = to_json(%s::text), "
            "errors = jsonb_build_array(jsonb_build_object('attempt', 1, 'type', 'E', 'message', %s::text)) where id = %s",
            *(text, text, text[:60_000], first),
        )
        lake = Lake(tmp_path / str(size))
        counts.append(_calls_of(queue, lake))
        (found,) = [row for row in _rows(lake) if row["id"] == first]
        assert json.loads(found["args"]) == {"text": text}
        assert json.loads(found["result"]) == text
    least, most = counts
    assert most < 2 * least + 20_000


def _calls_of(queue: PgQueue, lake: Lake) -> int:
    """Of an export that is verified."""

    def work() -> None:
        export(no_session, queue.database, lake)
        assert not any(one.reason for one in verify(no_session, queue.database, lake))

    return calls_while(work)


def _rows(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.dataset(ENDED, ENDED_SCHEMA, [DAY]).to_table().to_pylist()
    return found
