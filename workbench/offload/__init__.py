"""Memory beyond the device: tiers, and ways of training that use them (torch).

- `tiers`, `lanes`, `budget`: where tensors lie, how they move, what the device may hold;
- `swap`: activations leave after the forward and return in time (S01);
- `streaming`: the host owns the net, the device sees two layers (S07), `sharing` one
  copy among the ranks of a machine;
- `placement`, `optimizer_states`: ZeRO's weights, gradients and states in a tier (S09);
- `row_cache`, `cached_embedding`: tables with their frequent rows on the device (S17).

What they cost is predicted by `planner.offload`, which takes the same decisions.
"""
