"""Arithmetic that takes one case or a million: Python numbers or NumPy arrays alike.

Every formula of this room is written once, with operators and these helpers. `plan`
feeds it Python numbers, so planning one layout loads no NumPy; `search` feeds it arrays.
"""

from typing import Any, TypeAlias

#: A Python number, or a NumPy array of one number per case.
Num: TypeAlias = Any


def where(condition: Num, yes: Num, no: Num) -> Num:
    """Return `yes` where the condition holds, else `no`.

    >>> where(2 > 1, "a", "b")
    'a'
    """
    if isinstance(condition, bool):
        return yes if condition else no
    import numpy as np

    return np.where(condition, yes, no)


def largest(first: Num, *others: Num) -> Num:
    """Return the largest, case by case.

    >>> largest(1, 3, 2)
    3
    """
    for other in others:
        first = where(first >= other, first, other)
    return first


def smallest(first: Num, *others: Num) -> Num:
    """Return the smallest, case by case.

    >>> smallest(4, 3)
    3
    """
    for other in others:
        first = where(first <= other, first, other)
    return first


def ceil_div(number: Num, by: Num) -> Num:
    """Return the whole number of parts of size `by` that hold `number`.

    >>> ceil_div(7, 2)
    4
    """
    return -(-number // by)


def never(condition: Num) -> bool:
    """Return whether a condition holds in no case at all.

    >>> never(1 > 2)
    True
    """
    return not (condition if isinstance(condition, bool) else condition.any())
