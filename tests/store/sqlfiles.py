"""The text of every file of ``sql/`` and of its folders, by the name that plans use."""

from importlib.resources import files

from pgqueue.store.column_lists import with_lists

FOLDERS = sorted(
    folder.name
    for folder in files("pgqueue.sql").iterdir()
    if folder.is_dir() and not folder.name.startswith("_")
)
WRITTEN = {
    f"{folder}/{file.name.removesuffix('.sql')}": file.read_text(encoding="utf-8")
    for folder in FOLDERS
    if folder != "schema"
    for file in files("pgqueue.sql").joinpath(folder).iterdir()
    if file.name.endswith(".sql")
}
"""As they are written."""
SQL = {name: with_lists(text) for name, text in WRITTEN.items()}
"""As they are sent: with their lists of columns written out."""
