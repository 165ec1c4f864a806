"""The page of the command: what ``--help`` prints of each command, asked of click."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from pgqueue.cli.main import main


def commands(root: Path) -> str:  # noqa: ARG001 - as the other generated pages
    """The Markdown of every command and option."""
    with click.Context(main, info_name="pgqueue") as context:
        return "\n\n".join(
            ["## Options of every command", _options(main, context), *_inside(main, context, level=2)]
        )


def _inside(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with click.Context(command, parent=context, info_name=name) as inner:
            path = inner.command_path.removeprefix("pgqueue ")
            yield f"{'#' * level} `{path}`"
            yield f"```text\n{' '.join([inner.command_path, *command.collect_usage_pieces(inner)])}\n```"
            yield from _paragraphs(command)
            yield _options(command, inner)
            if isinstance(command, click.Group):
                yield from _inside(command, inner, level + 1)


def _paragraphs(command: click.Command) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").partition("\f")[0].split("\n\n"):
        as_written = paragraph.removeprefix("\b\n")
        yield (
            f"```text\n{as_written}\n```" if as_written != paragraph else _plain(" ".join(paragraph.split()))
        )


def _options(command: click.Command, context: click.Context) -> str:
    shown = (
        one
        for one in command.get_params(context)
        if isinstance(one, click.Option) and "--help" not in one.opts
    )
    rows = [record for one in shown if (record := one.get_help_record(context)) is not None]
    if not rows:
        return ""
    return "\n".join(
        [
            "| Option | Meaning |",
            "|---|---|",
            *(f"| {_code(names)} | {_plain(words)} |" for names, words in rows),
        ]
    )


def _code(names: str) -> str:
    return f"`{names}`"


def _plain(words: str) -> str:
    """Words of a help as Markdown: what is no mark there is none here."""
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
