"""Asks a gRPC server for its health once; the exit code is for containers and scripts.

python -m aquifer_rpc.health_check 127.0.0.1:7100
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, Final

from aquifer_core.errors import AquiferError
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aquifer_rpc.calls import call_unary
from aquifer_rpc.channel import connect
from aquifer_rpc.settings import GrpcClientSettings, TlsClientSettings

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING


async def check(
    address: str,
    *,
    service: str = "",
    deadline_s: float = 3.0,
    tls: TlsClientSettings | None = None,
) -> str | None:
    """None when the server serves, else what is wrong in one line.

    Args:
        address: `host:port`.
        service: full name of a service; empty: the server as a whole.
        deadline_s: for connection and answer together; nothing is repeated.
        tls: None for plaintext.
    """
    try:
        async with connect(address, settings=GrpcClientSettings(tls=tls)) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await call_unary(stub.Check, request, deadline_s=deadline_s, retry=False)
    except AquiferError as error:
        return f"{address}: {error.message}"
    if answer.status == _SERVING:
        return None
    return f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line: 0 serving, 1 not."""
    parser = argparse.ArgumentParser(prog="aquifer_rpc.health_check", description=__doc__)
    parser.add_argument("address", help="host:port")
    parser.add_argument("--service", default="", help="full name of a service; default: the server")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds")
    parser.add_argument("--ca", type=Path, help="authorities to trust; turns TLS on")
    parser.add_argument("--certificate", type=Path, help="certificate for mTLS")
    parser.add_argument("--key", type=Path, help="private key for mTLS")
    parser.add_argument(
        "--server-name", help="name to expect in the certificate; default: the host of the address"
    )
    given = parser.parse_args(arguments)
    files = (given.ca, given.certificate, given.key)
    tls = TlsClientSettings(
        ca_file=files[0],
        certificate_file=files[1],
        key_file=files[2],
        server_name=given.server_name,
    )
    wrong = asyncio.run(
        check(
            given.address,
            service=given.service,
            deadline_s=given.timeout,
            tls=tls if any(files) else None,
        )
    )
    if wrong is not None:
        print(wrong, file=sys.stderr)  # noqa: T201
    return int(wrong is not None)


if __name__ == "__main__":
    sys.exit(main())
