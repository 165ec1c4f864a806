"""What operators did: who, when, to what, and why."""

from typing import Final

import msgspec

from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit

SHOWN: Final = 50


def read(visit: Visit) -> Content:
    """A page of entries, newest first."""
    found = visit.queue.insight.audit(before=visit.number("below"), limit=SHOWN + 1)
    entries = [
        msgspec.structs.replace(one, details=visit.redaction.value(one.details)) for one in found[:SHOWN]
    ]
    return {"entries": entries, "older": entries[-1].id if len(found) > SHOWN else None}


PAGE = Page(name="audit", path="/audit", title="Audit", read=read, place=90, every=10)
