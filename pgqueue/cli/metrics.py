"""``pgqueue metrics``: what the database knows of the whole queue, for Prometheus: as text, or as an endpoint."""

from contextlib import suppress

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.signals import ENDING, end_like_an_interrupt
from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra
from pgqueue.values.payloads.storable import escapes_in

LOOPBACK = "127.0.0.1"


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), help="Serve them there until Ctrl-C; 0: a free port.")
@click.option("--host", default=LOOPBACK, show_default=True, help="The address to listen on.")
@with_queue
def metrics(queue: PgQueue, /, *, port: int | None, host: str) -> None:
    """Print the metrics of the whole queue, or serve them: depths, ages, workers, schedules, limits, tables.

    The metrics of one worker are at `pgqueue worker --metrics-port`.
    """
    require()
    from pgqueue.telemetry import prometheus  # noqa: PLC0415 - needs a package that not every program has

    if port is None:
        # A name may have any characters. In a label's value a backslash is two.
        text = prometheus.queue_text(queue)
        escapes = {code: f"\\{escape}" for code, escape in escapes_in(text, keep="\n").items()}
        click.echo(text.translate(escapes), nl=False)
        return
    endpoint = prometheus.queue_endpoint(queue, host=host, port=port)
    shown = f"[{host}]" if ":" in host else host
    with suppress(KeyboardInterrupt), end_like_an_interrupt(*ENDING):
        click.echo(f"metrics on http://{shown}:{endpoint.port}/metrics; Ctrl-C stops it", err=True)
        endpoint.serve()


def require() -> None:
    """Refuse metrics where their package is missing.

    Raises:
        ConfigurationError: prometheus-client is not installed.
    """
    try:
        import prometheus_client  # noqa: F401, PLC0415 - whether it is there
    except ImportError as error:
        raise ConfigurationError(
            missing_extra("metrics", "metrics need the package prometheus-client")
        ) from error
