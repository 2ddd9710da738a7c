"""The object store without us: what the `minio` client alone does with the same bytes."""

import time
from collections.abc import Sequence
from pathlib import Path

from aquifer_standalone.readiness import S3Target
from minio import Minio

BUCKET = "bench-raw"
PART_BYTES = 32 * 1024 * 1024
RANGE_BYTES = 4 * 1024 * 1024


def client(target: S3Target) -> Minio:
    made = Minio(
        target.endpoint,
        access_key=target.access_key,
        secret_key=target.secret_key,
        region=target.region,
        secure=False,
    )
    if not made.bucket_exists(BUCKET):
        made.make_bucket(BUCKET)
    return made


def put_mb_s(target: S3Target, files: Sequence[Path]) -> float:
    """Uploads the files one after the other, each as the client does it by itself."""
    minio = client(target)
    total = 0
    started = time.perf_counter()
    for number, path in enumerate(files):
        size = path.stat().st_size
        with path.open("rb") as file:
            minio.put_object(BUCKET, f"raw-{number}", file, size, part_size=PART_BYTES)
        total += size
    return total / 1e6 / (time.perf_counter() - started)


def get_mb_s(target: S3Target, sizes: Sequence[int]) -> float:
    """Reads what was uploaded with ranged GETs, front to back."""
    minio = client(target)
    total = 0
    started = time.perf_counter()
    for number, size in enumerate(sizes):
        for position in range(0, size, RANGE_BYTES):
            response = minio.get_object(
                BUCKET, f"raw-{number}", offset=position, length=min(RANGE_BYTES, size - position)
            )
            try:
                total += len(response.read())
            finally:
                response.close()
                response.release_conn()
    return total / 1e6 / (time.perf_counter() - started)
