"""What optimizer states off the device cost: no torch here."""

from dataclasses import dataclass

from workbench.planner.offload.link import Link

#: What the host reads and writes per float32 parameter in an Adam step: parameter,
#: gradient and two moments read, parameter and moments written.
ADAM_HOST_BYTES = 28


@dataclass(frozen=True, kw_only=True)
class HostStep:
    """One optimizer step on the host.

    Args:
        gradients_out_s: Bringing gradients to the host.
        update_s: The host's own work, bound by its memory.
        weights_in_s: Bringing weights back.
    """

    gradients_out_s: float
    update_s: float
    weights_in_s: float

    def exposed_s(self, *, backward_s: float, forward_s: float) -> float:
        """Return what a step waits.

        Gradients hide under the backward, weights under the next forward, the update
        under neither.

        >>> step = HostStep(gradients_out_s=0.5, update_s=0.25, weights_in_s=0.5)
        >>> step.exposed_s(backward_s=1.0, forward_s=0.25)
        0.5
        """
        return (
            max(0.0, self.gradients_out_s - backward_s)
            + self.update_s
            + max(0.0, self.weights_in_s - forward_s)
        )


def host_step(
    num_parameters: int,
    *,
    gradient_bytes: int,
    weight_bytes: int,
    outward: Link,
    inward: Link,
    host_bytes_per_s: float,
) -> HostStep:
    """Return the parts of an Adam step on the host.

    Args:
        num_parameters: This rank's share.
        gradient_bytes: Per parameter, as it crosses the link.
        weight_bytes: Per parameter, as it crosses the link.
        outward: The link for gradients.
        inward: The link for weights.
        host_bytes_per_s: Sustained rate of the host's memory.
    """
    return HostStep(
        gradients_out_s=outward.seconds(gradient_bytes * num_parameters),
        update_s=ADAM_HOST_BYTES * num_parameters / host_bytes_per_s,
        weights_in_s=inward.seconds(weight_bytes * num_parameters),
    )
