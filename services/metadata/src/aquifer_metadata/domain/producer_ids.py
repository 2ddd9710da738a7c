"""Blocks of producer ids."""

from aquifer_core.errors import InvalidRequestError

MAX_BLOCK = 10_000


def check_block_size(count: int) -> int:
    """The size of a block to reserve.

    Raises:
        InvalidRequestError: not between 1 and 10000.
    """
    if not 0 < count <= MAX_BLOCK:
        raise InvalidRequestError(f"count {count} is not between 1 and {MAX_BLOCK}")
    return count
