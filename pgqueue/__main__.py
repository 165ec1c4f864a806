"""``python -m pgqueue`` is the ``pgqueue`` command."""

from pgqueue.cli.main import main

if __name__ == "__main__":
    main(prog_name="pgqueue")
