"""Runs a command that cannot outlive the supervisor: `_launch.py PARENT UID GID KEEP -- COMMAND...`.

Executed as a file by a bare interpreter (`-S -E -s`), hence only the standard library and nothing of this package. A
hook between fork and exec would be simpler and is not safe in a process with threads; this program is single-threaded.

PARENT is the supervisor's process id. UID and GID are -1 to stay who we are. With KEEP = 1 the command keeps, as
an unprivileged user, root's right to pass folders (capabilities(7), CAP_DAC_OVERRIDE), because the data folder or the
interpreter's environment may lie under one that only root may enter.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522
_EXIT_PARENT_GONE = 125


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _become(libc: ctypes.CDLL, uid: int, gid: int, *, keep_file_access: bool) -> None:
    if keep_file_access:
        _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "keep capabilities")
        # Or access(2), by which PostgreSQL looks for its own programs, would leave the capability out of account.
        bits = libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        _check(bits, "keep capabilities in access(2)")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if keep_file_access:
        bit = 1 << _CAP_DAC_OVERRIDE
        header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
        data = (_CapabilityData * 2)(_CapabilityData(bit, bit, bit), _CapabilityData(0, 0, 0))
        _check(libc.capset(ctypes.byref(header), data), "set capabilities")
        raised = libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)
        _check(raised, "raise an ambient capability")


def _die_with_parent(libc: ctypes.CDLL, parent: int) -> None:
    # A change of user clears the death signal, so this comes after `_become`.
    _check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "die with the parent")
    if os.getppid() != parent:
        sys.exit(_EXIT_PARENT_GONE)


def main(arguments: list[str]) -> None:
    """Change user if asked, tie the process to its parent, become the command."""
    parent, uid, gid, keep, separator, *command = arguments
    if separator != "--" or not command:
        raise SystemExit("usage: _launch.py PARENT UID GID KEEP -- COMMAND...")
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if int(uid) >= 0:
            _become(libc, int(uid), int(gid), keep_file_access=keep == "1")
        _die_with_parent(libc, int(parent))
    elif int(uid) >= 0:
        os.setgid(int(gid))
        os.setuid(int(uid))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
