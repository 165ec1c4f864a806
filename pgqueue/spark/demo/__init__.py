"""``pgqueue pipeline demo`` and ``generate``: made-up history, the app of the real jobs, and whether the lake holds all of them."""

from pgqueue.values.hints import extra_for

with extra_for("report", "made-up history", "pyarrow"):
    import pyarrow  # noqa: F401, ICN001 - its modules need it
