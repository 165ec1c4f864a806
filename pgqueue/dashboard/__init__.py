"""The dashboard: pages on which people look at a queue and steer it. It is a WSGI application, and has an ASGI twin.

It needs the extra ``pgqueue-jobs[dashboard]``.
"""

from pgqueue.dashboard.access import LOOPBACK_HOSTS, Right, User, on_this_machine
from pgqueue.dashboard.dashboard import Dashboard
from pgqueue.dashboard.redaction import SECRETS

__all__ = ["LOOPBACK_HOSTS", "SECRETS", "Dashboard", "Right", "User", "on_this_machine"]
