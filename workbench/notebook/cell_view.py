"""A cell's output in a notebook: text under rank labels, figures and HTML as they are."""

from IPython.display import publish_display_data

from workbench.protocol.messages import CellDisplay
from workbench.protocol.spans import label
from workbench.session.view import TextView


class CellView(TextView):
    """Shows lines as text and rich results under a line that names their rank."""

    def display(self, message: CellDisplay) -> None:
        """Show a figure, a table, HTML."""
        self.refresh(final=True)
        transient = {}
        if message.display:
            transient["display_id"] = f"rank{message.rank}-{message.display}"
        if not message.update:
            print(f"{label((message.rank,))}:")  # noqa: T201 the label of what follows
        publish_display_data(
            message.data,
            message.metadata,
            transient=transient,
            update=message.update,
        )
