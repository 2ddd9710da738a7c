"""Says where in our code an exception passed through."""

import traceback

_OURS = "aquifer_"
_PLUMBING = "aquifer_rpc.served_methods"


def innermost_frame(error: BaseException) -> str:
    """`module:function` of the innermost frame in Aquifer's code, else of the innermost frame of all."""
    place = "the handler"
    ours = ""
    for frame, _line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        place = f"{name}:{frame.f_code.co_qualname}"
        if name.startswith(_OURS) and name != _PLUMBING:
            ours = place
    return ours or place
