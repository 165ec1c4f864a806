"""The project's command line; tests run it as users do theirs."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "neighbours.project.settings")
    execute_from_command_line(sys.argv)
