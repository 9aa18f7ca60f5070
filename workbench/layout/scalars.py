"""The scalars that ranks sum once a step: planner and strategies agree on them.

One all-reduce carries them all over every rank of the grid (axis "world"): the loss sum
and the token count make the mean of an uneven batch right, and the square sum of each
rank's own gradients gives the norm.
"""

SCALAR_DTYPE = "float64"
STEP_SCALARS = ("loss_sum", "num_tokens", "gradient_square_sum")
