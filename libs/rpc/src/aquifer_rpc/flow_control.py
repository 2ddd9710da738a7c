"""HTTP/2 flow control for streams of 1 MiB messages."""

from typing import Final

_FRAME_BYTES: Final = 1024 * 1024


def window_options(stream_window_bytes: int) -> list[tuple[str, int]]:
    """Options of a server or channel that fix the window of a stream.

    gRPC's own probing (BDP) would grow the window to whatever the link takes: read-ahead that nobody budgeted for, and that is
    thrown away when a reader closes early. A fixed one is a little slower on loopback.
    """
    return [
        ("grpc.http2.lookahead_bytes", stream_window_bytes),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.max_frame_size", _FRAME_BYTES),
    ]
