"""The text of every file of ``sql/`` and of its folders, by the name that plans use, with its lists of columns written out."""

from importlib.resources import files

from pgqueue.store.column_lists import with_lists

FOLDERS = sorted(
    folder.name
    for folder in files("pgqueue.sql").iterdir()
    if folder.is_dir() and not folder.name.startswith("_")
)
SQL = {
    f"{folder}/{file.name.removesuffix('.sql')}": with_lists(file.read_text(encoding="utf-8"))
    for folder in FOLDERS
    if folder != "schema"
    for file in files("pgqueue.sql").joinpath(folder).iterdir()
    if file.name.endswith(".sql")
}
