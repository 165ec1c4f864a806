"""What the tests of batch tasks share: the jobs' argument, and times that no test waits for."""

from dataclasses import dataclass
from datetime import timedelta

from tenacity import wait_fixed

from pgqueue import Retry

LATER = Retry(wait=wait_fixed(3600))
A_MINUTE = timedelta(minutes=1)


@dataclass
class Document:
    number: int
    tenant: str = "one"
