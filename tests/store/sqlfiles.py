"""The text of every file of ``sql/`` and of its folders, by the name that plans use."""

from importlib.resources import files

FOLDERS = {"": "", "adopt/": "adopt", "made_up/": "made_up", "pipeline/": "pipeline"}
SQL = {
    prefix + file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
    for prefix, folder in FOLDERS.items()
    for file in files("pgqueue.sql").joinpath(folder).iterdir()
    if file.name.endswith(".sql")
}
