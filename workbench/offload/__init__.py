"""Memory beyond the device: tiers, and ways of training that use them (torch)."""
