"""The command under ``spark-submit``, which runs only files whose names end in ``.py``.

``spark-submit --master yarn "$(python -m pgqueue.cli.submit --where)" pipeline export --lake s3://bucket/lake``
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the command; with ``--where`` print this file's place."""
    here = Path(__file__).resolve()
    if sys.argv[1:] == ["--where"]:
        print(here)  # noqa: T201 - for the shell
        return
    # spark-submit puts this file's folder first on the path: its modules would be found under names such as ``values``.
    sys.path[:] = [place for place in sys.path if not place or Path(place).resolve() != here.parent]
    from pgqueue.cli.main import main as command  # noqa: PLC0415 - with that path

    command(prog_name="pgqueue")


if __name__ == "__main__":
    main()
