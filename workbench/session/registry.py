"""The open sessions of this process.

Processes are a resource of the whole process, so this is one of the few objects of the
project that lives in a module: magics find the newest session here, and the end of the
interpreter closes what is left.
"""

import atexit
from typing import TYPE_CHECKING

from workbench.errors import SessionError

if TYPE_CHECKING:
    from workbench.session.session import Session


class OpenSessions:
    """Sessions in the order in which they were opened."""

    def __init__(self) -> None:
        self._sessions: list[Session] = []

    def add(self, session: "Session") -> None:
        """Remember a session until it is closed."""
        if not self._sessions:
            atexit.register(self.close_all)
        self._sessions.append(session)

    def discard(self, session: "Session") -> None:
        """Forget a session."""
        if session in self._sessions:
            self._sessions.remove(session)
        if not self._sessions:
            atexit.unregister(self.close_all)

    def newest(self) -> "Session":
        """Return the session that was opened last and still lives.

        Raises:
            SessionError: There is none.
        """
        for session in reversed(self._sessions):
            if not session.closed:
                return session
        raise SessionError(
            "no session is open here",
            hint="start one with %distributed up -n 2, or wb.connect(num_ranks=2)",
        )

    def close_all(self) -> None:
        """Close what lives by this process, leave what has a lease of its own."""
        for session in list(self._sessions):
            session.let_go()


OPEN_SESSIONS = OpenSessions()
