"""An S3-compatible server in a process of its own, whose requests can be made to fail.

It is a process, since ``deltalake`` waits for answers without letting other threads of its process run.
"""

import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "lakes"
CONTROL = "/-/"
Answer = Iterable[bytes]
Start = Callable[..., object]


class ObjectStore:
    def __init__(self, url: str) -> None:
        self.url = url

    def fail_first(self) -> None:
        """From now on the first request of each kind for each object is answered with an error of the server."""
        self._tell("fail_first")

    def deny(self) -> None:
        """From now on each request is answered as if the credentials had ended."""
        self._tell("deny")

    def requests(self) -> int:
        """How many requests were answered."""
        return int(self._tell("requests"))

    def failed(self) -> int:
        """How many requests were made to fail."""
        return int(self._tell("failed"))

    @property
    def settings(self) -> dict[str, str]:
        """The variables with which programs find it, as they find Amazon's."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _tell(self, word: str) -> str:
        with urllib.request.urlopen(f"{self.url}{CONTROL}{word}", timeout=30) as answer:  # noqa: S310 - our own address
            return str(answer.read().decode())


@contextmanager
def serving() -> Iterator[ObjectStore]:
    """A server without objects, for the length of the block."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this file
        assert process.stdout is not None
        try:
            yield ObjectStore(process.stdout.readline().strip())
        finally:
            process.kill()


class _Server:
    def __init__(self, app: Callable[[dict[str, Any], Start], Answer]) -> None:
        self._app = app
        self._mode = "behave"
        self._failed = 0
        self._seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, environ: dict[str, Any], start: Start) -> Answer:
        path = environ["PATH_INFO"]
        if path.startswith(CONTROL):
            start("200 OK", [])
            return [self._told(path.removeprefix(CONTROL)).encode()]
        if self._mode == "deny":
            start("403 Forbidden", [("Content-Length", "0")])
            return []
        request = environ["REQUEST_METHOD"], path
        self._seen[request] += 1
        if self._mode == "fail_first" and self._seen[request] == 1:
            self._failed += 1
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        return self._app(environ, start)

    def _told(self, word: str) -> str:
        if word == "requests":
            return str(self._seen.total())
        if word != "failed":
            self._mode = word
        return str(self._failed)


def _main() -> None:
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - in this process only
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415 - as before

    class Silent(WSGIRequestHandler):
        def log_request(self, *said: object) -> None:
            """Say nothing."""

    app = _Server(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _main()
