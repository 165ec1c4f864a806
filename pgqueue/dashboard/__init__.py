"""The dashboard: pages on which people look at a queue and steer it. It is a WSGI application, and has an ASGI twin.

It needs the extra ``pgqueue-jobs[dashboard]``.
"""

from pgqueue.values.hints import extra_for

with extra_for(
    "dashboard", "pgqueue.dashboard", "a2wsgi", "itsdangerous", "jinja2", "markupsafe", "waitress", "werkzeug"
):
    from pgqueue.dashboard.access import LOOPBACK_HOSTS, Right, User, on_this_machine
    from pgqueue.dashboard.dashboard import Dashboard

__all__ = ["LOOPBACK_HOSTS", "Dashboard", "Right", "User", "on_this_machine"]
