"""Answers prompts with a net cut over tp and pp, keeping keys and values.

Traffic per request with prompt S, answer N, width h, L layers, b bytes an element, one
sample (S04, 2507.14392): a pass runs T = S tokens once, then T = 1 for N - 1 times.

- tp of degree t: 2L + 1 all-reduces of T*h*b a pass (after attention and after the MLP
  of each layer, and after the vocabulary-split embedding), of which a rank sends
  2(t-1)/t; one gather of the logits per token of the answer.
- pp of degree p: p - 1 sends of T*h*b a pass; a stage all-reduces for its layers only.
"""

import torch
import torch.distributed as dist

from workbench.collectives.ranks import Ranks
from workbench.errors import LayoutError
from workbench.layout import Axis
from workbench.strategies import tensor
from workbench.strategies.layers import GptAttention, LlamaAttention, causal_attention
from workbench.strategies.nets import Decoder, Embedding
from workbench.strategies.pipeline import cut_stages


class KeptAttention:
    """Attention to all tokens seen so far, for one layer."""

    def __init__(self) -> None:
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(
        self, q_BHTK: torch.Tensor, k_BGTK: torch.Tensor, v_BGTK: torch.Tensor
    ) -> torch.Tensor:
        """Keep the new keys and values, and attend to them and those before.

        Only the first pass may bring more than one token.
        """
        if self._kept is None:
            self._kept = (k_BGTK, v_BGTK)
            return causal_attention(q_BHTK, k_BGTK, v_BGTK)
        assert q_BHTK.shape[2] == 1, "after the prompt tokens come one by one"
        k, v = (
            torch.cat((old, new), dim=2)
            for old, new in zip(self._kept, (k_BGTK, v_BGTK), strict=True)
        )
        self._kept = (k, v)
        return torch.nn.functional.scaled_dot_product_attention(
            q_BHTK, k, v, enable_gqa=q_BHTK.shape[1] != k.shape[1]
        )


class Server:
    """A net's stages and shares on this rank, ready to answer.

    Args:
        net: With equal whole values on every rank; cut in place.
        ranks: A layout of tp and pp alone.

    Raises:
        LayoutError: Another axis.
    """

    def __init__(self, net: Decoder, ranks: Ranks) -> None:
        layout = ranks.layout
        others = set(layout.axes()) - {Axis.TP, Axis.PP}
        if others:
            raise LayoutError(
                f"serving runs over tp and pp, not over {', '.join(sorted(others))}",
                hint="one server per replica",
            )
        self.ranks = ranks
        self._vocab_size, self._hidden = net.head.weight.shape
        self._place = layout.coordinates(ranks.rank)[Axis.PP]
        self._stage = cut_stages(net, rank=self._place, num_ranks=layout.pp, chunks=1)[
            0
        ]
        if layout.tp > 1:
            mesh = ranks.mesh["tp"]
            tensor.split(self._stage, tensor.DECODER_RULES, mesh, sequence=False)

    @torch.no_grad()
    def answer(self, prompt_BT: torch.Tensor, *, num_tokens: int) -> torch.Tensor:
        """Return the likeliest tokens [B, num_tokens], one after another.

        All ranks must call this alike and get the same. Traffic is counted under the
        phases "prefill" and "decode".
        """
        self._forget()
        answer = [self._pass("prefill", prompt_BT, seen=0)]
        while len(answer) < num_tokens:
            seen = prompt_BT.shape[1] + len(answer) - 1
            answer.append(self._pass("decode", answer[-1], seen=seen))
        return torch.cat(answer, dim=1)

    def _pass(self, phase: str, tokens_BT: torch.Tensor, *, seen: int) -> torch.Tensor:
        """Run some tokens through all stages; returns the next token [B, 1]."""
        num_samples, num_tokens = tokens_BT.shape
        where = torch.arange(seen, seen + num_tokens, device=tokens_BT.device)
        for module in self._stage.modules():
            if isinstance(module, Embedding | LlamaAttention):
                module.where = where
        with self.ranks.group.phase(phase):
            x = tokens_BT
            if self._place > 0:
                x = self._from_before((num_samples, num_tokens, self._hidden))
            y = self._stage(x)
            return self._next_token(y, num_samples)

    def _from_before(self, shape: tuple[int, int, int]) -> torch.Tensor:
        x_BTD = torch.empty(shape, device=self.ranks.device)
        dist.recv(
            x_BTD, group=self.ranks.mesh.get_group("pp"), group_src=self._place - 1
        )
        return x_BTD

    def _next_token(self, y: torch.Tensor, num_samples: int) -> torch.Tensor:
        """Choose the likeliest token on the last stage, and tell the other stages."""
        layout = self.ranks.layout
        token = torch.empty(
            (num_samples, 1), dtype=torch.int64, device=self.ranks.device
        )
        last = layout.pp - 1
        if self._place < last:
            group = self.ranks.mesh.get_group("pp")
            dist.send(y, group=group, group_dst=self._place + 1)
        else:
            logits_BV = y[:, -1]
            if layout.tp > 1:
                logits_BV = tensor.whole_logits(
                    logits_BV,
                    vocab_size=self._vocab_size,
                    group=self.ranks.mesh.get_group("tp"),
                )
            token = logits_BV.argmax(-1, keepdim=True)
        if layout.pp > 1:
            group = self.ranks.mesh.get_group("pp")
            dist.broadcast(token, group=group, group_src=last)
        return token

    def _forget(self) -> None:
        for module in self._stage.modules():
            if isinstance(module, GptAttention | LlamaAttention):
                module.attend = KeptAttention()
