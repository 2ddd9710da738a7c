"""Times that people give on the command line."""

from datetime import UTC, datetime

import typer


def moment_ms(text: str) -> int:
    """A time in ISO 8601 as milliseconds since 1970; UTC where no offset is given.

    Raises:
        BadParameter: it is no such time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; give it as 2027-03-01T12:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
