"""The step and the loop: strategy, data, schedule, checkpoint (torch)."""
