"""HTTP/2 flow control for streams of 1 MiB messages."""

from typing import Final

_FRAME_BYTES: Final = 1024 * 1024


def window_options(stream_window_bytes: int) -> list[tuple[str, int]]:
    """Options of a server or channel that fix the window of a stream.

    gRPC's own probing (BDP) grows the window to whatever the link takes; that is read-ahead nobody budgeted for, and in
    16 KiB frames it costs half of the throughput on a fast link.
    """
    return [
        ("grpc.http2.lookahead_bytes", stream_window_bytes),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.max_frame_size", _FRAME_BYTES),
    ]
