"""Errors of Spark are told in one line, with their innermost cause."""

import pytest

from pgqueue.spark.session import LONGEST, in_a_line

JAVA = """An error occurred while calling o57.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:776)
Caused by: org.apache.spark.SparkException: [FAILED] something between
\tat org.apache.spark.Task.run(Task.scala:147)
Caused by: java.io.IOException: Mkdirs failed to create file:/lake/queue=x
\t... 13 more
"""
CAUSED = (
    "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030: "
    "java.io.IOException: Mkdirs failed to create file:/lake/queue=x"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            JAVA,
            CAUSED,
        ),
        ("no\nCaused by: no", "no"),
        ("  plain  ", "plain"),
        ("", "OSError"),
        ("x" * 5_000, "x" * LONGEST + "…"),
    ],
)
def test_the_stack_is_left_out_and_the_cause_is_kept(text: str, said: str) -> None:
    assert in_a_line(OSError(text)) == said
