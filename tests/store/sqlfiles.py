"""The text of every file of ``sql/`` and of its folders, by the name that plans use."""

from importlib.resources import files

PREFIXES = (
    "",
    "adopt/",
    "alerts/",
    "audit/",
    "bulk/",
    "flows/",
    "insight/",
    "notes/",
    "pipeline/",
    "limits/",
    "queues/",
    "replica/",
    "schedules/",
    "shards/",
    "signals/",
    "stacks/",
    "crashes/",
    "workers/",
)
SQL = {
    prefix + file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
    for prefix in PREFIXES
    for file in files("pgqueue.sql").joinpath(prefix).iterdir()
    if file.name.endswith(".sql")
}
