"""Who a server runs as that refuses to run as root, without creating a user on the machine."""

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aquifer_core.errors import InvalidConfigurationError

_PREFERRED_USER = "nobody"
_PASSABLE_AND_READABLE = stat.S_IXOTH | stat.S_IROTH


@dataclass(frozen=True, slots=True, kw_only=True)
class UnprivilegedUser:
    """A user to become; `keep_file_access` when some folder on the way to its files is closed to that user."""

    uid: int
    gid: int
    keep_file_access: bool


def unprivileged_user(data_dir: Path, programs: Iterable[Path]) -> UnprivilegedUser | None:
    """Choose whom to run `programs` as on `data_dir`, or None when we are not root and stay who we are.

    An existing data folder keeps its owner. Otherwise it is `nobody`, else any user known to the system that is not
    root (the server looks its own name up).

    Raises:
        InvalidConfigurationError: the system knows no user but root.
    """
    if os.geteuid() != 0:
        return None
    entry = _owner_of(data_dir) or _any_user()
    closed = any(_closed_to_others(path) for path in (data_dir.parent, *programs))
    return UnprivilegedUser(uid=entry.pw_uid, gid=entry.pw_gid, keep_file_access=closed)


def _owner_of(data_dir: Path) -> pwd.struct_passwd | None:
    if not data_dir.exists() or data_dir.stat().st_uid == 0:
        return None
    try:
        return pwd.getpwuid(data_dir.stat().st_uid)
    except KeyError:
        raise InvalidConfigurationError(
            f"{data_dir} belongs to user id {data_dir.stat().st_uid}, which this system does not know"
        ) from None


def _any_user() -> pwd.struct_passwd:
    users = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    if not users:
        raise InvalidConfigurationError(
            "PostgreSQL refuses to run as root and the system has no other user"
        )
    return min(users, key=lambda entry: entry.pw_name != _PREFERRED_USER)


def _closed_to_others(path: Path) -> bool:
    if path.stat().st_mode & _PASSABLE_AND_READABLE != _PASSABLE_AND_READABLE:
        return True
    return any(not parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
