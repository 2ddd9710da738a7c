"""The same thing for many, one after the other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aquifer_core.errors import AquiferError, UnavailableError

S = TypeVar("S")
T = TypeVar("T")


async def in_turn(
    subjects: Sequence[S], work: Callable[[S], Awaitable[T]]
) -> tuple[list[T], list[tuple[S, AquiferError]]]:
    """Does the work for each; a failure with one hides nothing of what was found, or done, with the others.

    Those left are not tried when a service is away, and have failed with that.

    Returns:
        Results, and the subjects without one with the reason.

    Raises:
        AquiferError: there is no result; of the first subject.
    """
    done: list[T] = []
    failed: list[tuple[S, AquiferError]] = []
    for number, subject in enumerate(subjects):
        try:
            done.append(await work(subject))
        except UnavailableError as error:
            failed += [(left, error) for left in subjects[number:]]
            break
        except AquiferError as error:
            failed.append((subject, error))
    if failed and not done:
        raise failed[0][1]
    return done, failed
