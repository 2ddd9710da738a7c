"""Asynchronous iterators that are left before their end."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar, cast

__all__ = ["closing"]

T = TypeVar("T")


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Closes a stream when the block is left, so that what it holds (a call, a connection) is given back at once."""
    if hasattr(stream, "aclose"):
        async with aclosing(cast(Any, stream)):
            yield stream
    else:
        yield stream
