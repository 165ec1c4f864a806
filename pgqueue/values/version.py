"""This package's version, as installed."""

from importlib.metadata import version

VERSION = version("pgqueue")
