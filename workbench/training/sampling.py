"""Lets a trained net continue a prompt, byte by byte."""

from collections.abc import Callable

import torch


def continue_text(
    logits: Callable[[torch.Tensor], torch.Tensor],
    prompt: str,
    *,
    num_bytes: int,
    context: int,
    temperature: float,
    seed: int,
) -> str:
    """Return the prompt with `num_bytes` more bytes drawn from the net.

    Args:
        logits: Gives logits [1, T, V] of tokens [1, T].
        prompt: What to continue; its last `context` bytes are seen.
        num_bytes: How many to add.
        context: The longest input of the net.
        temperature: Below 1 the likelier bytes become likelier; 0 takes the likeliest.
        seed: Of the draws, so that all ranks draw the same.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt.encode() or b"\n")
    for _ in range(num_bytes):
        last = logits(torch.tensor([tokens[-context:]]))[0, -1].float().cpu()
        if temperature == 0:
            tokens.append(int(last.argmax()))
        else:
            shares = torch.softmax(last / temperature, dim=0)
            tokens.append(int(torch.multinomial(shares, 1, generator=generator)))
    return bytes(tokens).decode(errors="replace")
