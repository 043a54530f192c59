"""Where a client's id stands in text, and Prefect's feed of events without it.

Imports no prefect.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["drop_events", "mention_of"]

_WAIT_S = 30.0


def mention_of(client_id: str) -> str:
    """Return a pattern of a client's id that is not part of a longer one.

    Examples
    --------
    >>> [bool(re.search(mention_of("p-1"), t)) for t in ("p-1, p-2", "by p-1.", "p-11", "p-1.b")]
    [True, True, False, False]
    """
    return rf"(?<![\w-])(?<!\w\.){re.escape(client_id)}(?![\w-]|\.\w)"


def drop_events(database: Path, client_id: str) -> str | None:
    """Delete what a Prefect server of ours, which is stopped, still tells of a client.

    Its feed of events quotes the accounts of nights for a week, and nothing of it can be deleted
    through the API.

    Returns
    -------
    str or None
        What failed, in one line.
    """
    if not database.exists():
        return None
    pattern = re.compile(mention_of(client_id))
    try:
        with closing(sqlite3.connect(database, timeout=_WAIT_S)) as connection:
            with connection:
                events = connection.execute("SELECT id, payload FROM events")
                named = [(event,) for event, payload in events if pattern.search(str(payload))]
                connection.executemany("DELETE FROM event_resources WHERE event_id = ?", named)
                connection.executemany("DELETE FROM events WHERE id = ?", named)
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        return f"{database} was not cleaned ({error}): its events go after seven days"
    return None
