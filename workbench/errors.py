"""The errors a person sees: what was asked, the numbers, one way out.

WorkbenchError
 ├── LayoutError     degrees that do not divide or multiply to the ranks at hand
 ├── ModelError      a model description that contradicts itself
 ├── HardwareError   an unknown device, a cluster description that does not add up
 ├── OffloadError    a tier, budget or cache too small for what it should hold
 ├── PlanError       a question the planner cannot answer for these inputs
 ├── DataError       no data, or data that cannot be read
 ├── StoreError      a run that is not in the store, a store that cannot be opened
 ├── ClusterError    no scheduler, no workers, too few devices
 ├── SessionError    the session is closed, lost, or busy
 └── RankError       one or more ranks raised while running a cell
"""


class WorkbenchError(Exception):
    """An error made for the person at the notebook.

    Args:
        message: What was asked and which numbers contradict it.
        hint: One way out that would work, or None where there is none.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return (
            self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"
        )

    def _render_traceback_(self) -> list[str]:
        """Show IPython the message alone: the frames are ours, not the person's."""
        return [f"{type(self).__name__}: {self}"]


class LayoutError(WorkbenchError):
    """Degrees that do not divide, or that do not multiply to the ranks at hand."""


class ModelError(WorkbenchError):
    """A model description that contradicts itself."""


class HardwareError(WorkbenchError):
    """An unknown device or a cluster description that does not add up."""


class OffloadError(WorkbenchError):
    """A tier, budget or cache too small for what it should hold."""


class PlanError(WorkbenchError):
    """A question that the planner cannot answer for these inputs."""


class DataError(WorkbenchError):
    """No data, or data that cannot be read."""


class StoreError(WorkbenchError):
    """A run that is not in the store, or a store that cannot be opened."""


class ClusterError(WorkbenchError):
    """No scheduler, no workers, or too few devices."""


class SessionError(WorkbenchError):
    """The session is closed, lost, or busy."""


class RankError(WorkbenchError):
    """One or more ranks raised while running a cell.

    Args:
        message: The whole report, guilty rank first.
        ranks: The ranks that raised.
        hint: One way out.
    """

    def __init__(
        self, message: str, *, ranks: tuple[int, ...], hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.ranks = ranks
