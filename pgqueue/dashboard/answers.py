"""Answers that are no pages: errors as people are told of them, files of the package, files to be saved."""

import hashlib
import logging
from http import HTTPStatus
from importlib.resources import files
from typing import Final

import psycopg
from werkzeug.exceptions import BadRequest, Forbidden, HTTPException, NotFound, ServiceUnavailable
from werkzeug.wrappers import Response

from pgqueue.dashboard.access import with_headers
from pgqueue.dashboard.page import Download
from pgqueue.errors import (
    ConnectionFailed,
    DatabaseError,
    FlowNotFound,
    JobNotFound,
    NotGranted,
    PgQueueError,
    UnknownSchedule,
    UnknownWorker,
)

log = logging.getLogger("pgqueue.dashboard")

KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STATIC: Final = files("pgqueue.dashboard") / "static"


def error_answer(error: Exception) -> HTTPException:
    """What a person is told of an error."""
    match error:
        case JobNotFound() | FlowNotFound() | UnknownWorker() | UnknownSchedule():
            return NotFound(str(error))
        case NotGranted():
            return Forbidden(f"The dashboard's login to the database: {error}")
        case DatabaseError() | psycopg.OperationalError():
            away = isinstance(error, ConnectionFailed | psycopg.OperationalError)
            said = "does not answer" if away else "cannot be used"
            log.error("the database %s", said, exc_info=error)
            return ServiceUnavailable(f"The database {said}: {error}", retry_after=5)
        case PgQueueError():
            return BadRequest(str(error))
        case psycopg.Error():
            log.error("the database refused what the dashboard asked", exc_info=error)
            return BadRequest("The database refused this; the log of the dashboard has more.")
        case _:
            log.error("the dashboard failed", exc_info=error)
            failed = HTTPException("This page has a mistake; the log of the dashboard has more.")
            failed.code = HTTPStatus.INTERNAL_SERVER_ERROR
            return failed


def file_answer(download: Download) -> Response:
    """A file to be saved."""
    response = Response(download.text, mimetype="text/plain")
    response.headers.set("Content-Disposition", "attachment", filename=download.name)
    return response


def static_answer(name: str) -> Response:
    """A file of the package: the style, the script, the icon.

    Raises:
        NotFound: there is none of this name.
    """
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or "/" in name or "\\" in name or not (STATIC / name).is_file():
        raise NotFound
    return with_headers(Response((STATIC / name).read_bytes(), mimetype=kind), cached=True)


STAMP: Final = hashlib.sha256(
    b"".join(one.read_bytes() for one in sorted(STATIC.iterdir(), key=lambda one: one.name))
).hexdigest()[:12]
