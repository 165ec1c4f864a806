"""What may be logged of errors where a codec hides them: their class and the lines that raised them, but no message.

A message of a task's error often quotes an argument. What is stored of the error is encoded; a log is not.
"""

from pgqueue.errors import PayloadNotDecodable
from pgqueue.values.payloads.codec import Codec


class HiddenError(Exception):
    """Stands in a log for an error whose message a codec hides."""


def logged_error(codec: Codec | None, error: BaseException | None) -> BaseException | None:
    """An error as it may be logged: itself, or one that names its class and has its traceback."""
    if error is None or codec is None or not codec.hides_errors:
        return error
    kind = type(error)
    words = f"{kind.__module__}.{kind.__qualname__} (the codec hides its message; the job's record has it)"
    return HiddenError(words).with_traceback(error.__traceback__)


def logged_undecodable(codec: Codec | None, error: PayloadNotDecodable) -> str:
    """Why arguments cannot be read, as it may be logged; a codec's own words, such as which key it lacks, are not hidden."""
    said_by_codec = isinstance(error.__cause__, PayloadNotDecodable)
    return str(error if said_by_codec else logged_error(codec, error))
