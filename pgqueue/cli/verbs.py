"""Groups of verbs: imported when called, and helpful about a verb that is not there."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from pgqueue.values.nearest import nearest


class Verb(NamedTuple):
    """Where a verb is defined, as ``module:attribute``, and what it does in a few words."""

    target: str
    summary: str


class Group(click.Group):
    """A group that suggests the nearest verb for one it does not have."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that the command line names."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            near = nearest(name, self.list_commands(ctx))
            ctx.fail(f"No such verb {name!r}." + (f" Did you mean {near!r}?" if near else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that imports a verb's module when that verb is called; its help imports none."""

    def __init__(self, *args: Any, verbs: Mapping[str, Verb], **kwargs: Any) -> None:  # noqa: ANN401 - click's own
        """Remember where the verbs are; the rest is for click."""
        super().__init__(*args, **kwargs)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in order."""
        return sorted(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a verb; None: there is none of this name."""
        if cmd_name not in self._verbs:
            return None
        module, _, attribute = self._verbs[cmd_name].target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs from the table alone."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, self._verbs[name].summary) for name in self.list_commands(ctx)])
