"""Groups of commands: they import a command when it is called, and suggest the nearest name for an unknown one.

The options that name the app and the database may stand before a command's name or after it. They are defined once, on
the root; every command takes them, too. If an option is given twice, the later one is used. If the root hides them, as
a framework's own command does, no help shows them.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import click

from pgqueue.values.hints import nearest

LONGEST_SUMMARY = 200


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of every command; None or False: not given. ``arguments`` is the whole command line."""

    OPTIONS: ClassVar = (
        "app",
        "dsn",
        "schema",
        "behind_pooler",
        "direct_dsn",
        "replica_dsn",
        "embedded",
        "reveal",
    )

    arguments: tuple[str, ...] = ()
    app: str | None = None
    dsn: str | None = None
    schema: str | None = None
    behind_pooler: bool = False
    direct_dsn: str | None = None
    replica_dsn: str | None = None
    embedded: str | None = None
    reveal: bool = False


class Verb(NamedTuple):
    """Where a command is defined, as ``module:attribute``, and what it does in a few words."""

    target: str
    summary: str


class VerbGroup(click.Group):
    """A group whose commands take the options that name the app and the database; it suggests the nearest name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the command line names."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            near = nearest(name, self.list_commands(ctx))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near!r}?" if near else ""))
        found, command, rest = super().resolve_command(ctx, args)
        return found, command and _with_settings(command, ctx.find_root().command), rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with their full summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(ctx, name)) for name in self.list_commands(ctx)])

    def summary(self, ctx: click.Context, name: str) -> str:
        """What a command does, in a sentence."""
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(LONGEST_SUMMARY)


class LazyGroup(VerbGroup):
    """A group that imports a command's module when that command is called; its help imports none.

    Attributes:
        notes: text at the end of some commands' help, by the command's name.
    """

    def __init__(self, *args: Any, verbs: Mapping[str, Verb], **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        super().__init__(*args, **kwargs)
        self.notes: Mapping[str, str] = {}
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands, in order."""
        return sorted(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command; None: there is none of this name."""
        if cmd_name not in self._verbs:
            return None
        module, _, attribute = self._verbs[cmd_name].target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command

    def summary(self, ctx: click.Context, name: str) -> str:  # noqa: ARG002 - the base's signature
        """What a command does, from the table alone."""
        return self._verbs[name].summary


def _with_settings(command: click.Command, root: click.Command) -> click.Command:
    """The command, with the root's options added: hidden, so that ``--help`` shows the command's own options."""
    shared = [
        one for one in root.params if isinstance(one, click.Option) and one.name in CommandOptions.OPTIONS
    ]
    taking = copy.copy(command)
    taking.params = [*command.params, *map(_after_the_name, shared)]
    shown = ", ".join(one.opts[0] for one in shared if not one.hidden)
    notes = getattr(root, "notes", {})
    explained = "explains them" if "," in shown else "explains it"
    taking.epilog = notes.get(command.name) or f"{shown} can stand here, too; `pgqueue --help` {explained}."
    return taking


def _after_the_name(option: click.Option) -> click.Option:
    late = copy.copy(option)
    late.hidden, late.expose_value, late.envvar, late.callback = True, False, None, _override
    return late


def _override(ctx: click.Context, option: click.Parameter, value: Any) -> None:  # noqa: ANN401 - any option's value
    if value:
        settings = ctx.find_object(CommandOptions) or CommandOptions()
        ctx.obj = replace(settings, **{str(option.name): value})
