"""What segments need of a store, one check each."""

import asyncio
import hashlib
import os
from typing import Final

from aquifer_core.errors import RemoteResourceNotFoundError

from aquifer_storage.domain.store_check import Bench, Check, UnmetError

_MIB: Final = 1 << 20
_PART_BYTES: Final = 5 * _MIB
_RACERS: Final = 8
_LISTED: Final = 12
_SKEW_NOTED_MS: Final = 5_000
_SKEW_REFUSED_MS: Final = 15 * 60_000


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UnmetError(otherwise)


async def _consistency(bench: Bench) -> str:
    """Read after write, after overwrite and after delete, and in listings."""
    objects = bench.objects
    for number in range(5):
        key = bench.key(f"o{number}")
        _expect(await objects.size_bytes(key) is None, f"{key} is there before it was written")
        for version in (b"one", b"three"):
            await objects.put(key, version)
            found = await objects.get(key)
            _expect(found == version, f"wrote {version!r} and read {found!r}")
            _expect(await objects.size_bytes(key) == len(version), "the size is an older one")
        listed = [found.key async for found in objects.list_objects(key)]
        _expect(listed == [key], f"a written object is not listed at once: {listed}")
        await objects.delete([key])
        _expect(await objects.size_bytes(key) is None, "a deleted object is still there")
        listed = [found.key async for found in objects.list_objects(key)]
        _expect(not listed, f"a deleted object is still listed: {listed}")
    return "writes, overwrites and deletions are seen at once, also in listings"


async def _ranged_reads(bench: Bench) -> str:
    key, data = bench.key("o"), os.urandom(_MIB)
    await bench.objects.put(key, data)
    for start, length in ((0, 1), (5, 1000), (_MIB - 1, 1), (123_456, 345_678)):
        found = await bench.objects.get(key, start, length)
        _expect(
            found == data[start : start + length],
            f"bytes {start} to {start + length - 1} are not what was written there",
        )
    found = await bench.objects.get(key, _MIB - 10, 100)
    _expect(found == data[-10:], f"a range past the end gave {len(found)} bytes instead of 10")
    _expect(await bench.objects.get(key, _MIB, 10) == b"", "a range after the end gave bytes")
    pieces = [piece async for piece in bench.objects.read(key, 7, [100, 200, 300])]
    _expect([len(piece) for piece in pieces] == [100, 200, 300], "a body came in other sizes")
    _expect(b"".join(pieces) == data[7:607], "adjacent ranges are not what was written")
    return "ranges are exact, and cut at the end of the object"


async def _checksums(bench: Bench) -> str:
    """Bodies of several sizes come back with the digest they went in with."""
    for size in (0, 1, 4095, 65_537, 3 * _MIB + 1):
        key, data = bench.key(f"o{size}"), os.urandom(size)
        await bench.objects.put(key, data)
        found = await bench.objects.get(key)
        _expect(
            hashlib.sha256(found).digest() == hashlib.sha256(data).digest(),
            f"{size} bytes came back as {len(found)} others",
        )
    return "bodies of 0 bytes to 3 MiB come back with their SHA-256"


async def _damaged_bodies(bench: Bench) -> str:
    """Whether the store looks at checksums of what it gets: a segment leaves its broker's disk once the store has it."""
    await bench.objects.put(bench.key("o"), b"sound")
    _expect(
        await bench.tested.refuses_damage(bench.key("damaged")),
        "a body that does not match its checksum is stored",
    )
    return "a body that does not match its checksum is refused"


async def _missing_objects(bench: Bench) -> str:
    """What is not there is said not to be there: with a 403 nobody could tell it from a lack of rights."""
    key = bench.key("nothing")
    _expect(await bench.objects.size_bytes(key) is None, "an object that was never written exists")
    try:
        await bench.objects.get(key, 5, 10)
    except RemoteResourceNotFoundError:
        return "an object that is not there is answered so"
    raise UnmetError("an object that was never written can be read")


async def _multipart(bench: Bench) -> str:
    key = bench.key("o")
    parts = [os.urandom(_PART_BYTES), os.urandom(_PART_BYTES), os.urandom(1)]
    upload = await bench.objects.start_upload(key, _PART_BYTES)
    try:
        async with asyncio.TaskGroup() as group:
            for number, part in reversed(list(enumerate(parts, start=1))):
                group.create_task(upload.put_part(number, part))
        _expect(await bench.objects.size_bytes(key) is None, "parts are visible before the end")
        await upload.complete()
    except BaseException:
        await upload.abort()
        raise
    _expect(await bench.objects.get(key) == b"".join(parts), "parts were joined wrongly")
    return "parts go up at once in any order and appear together"


async def _multipart_abort(bench: Bench) -> str:
    key = bench.key("o")
    upload = await bench.objects.start_upload(key, _PART_BYTES)
    await upload.put_part(1, bytes(_PART_BYTES))
    await upload.abort()
    await upload.abort()
    _expect(await bench.objects.size_bytes(key) is None, "an aborted upload left an object")
    return "an upload can be given up, also twice"


async def _upload_listing(bench: Bench) -> str:
    key = bench.key("o")
    upload = await bench.objects.start_upload(key, _PART_BYTES)
    try:
        found = await bench.objects.abort_uploads(key)
    finally:
        await upload.abort()
    _expect(found == 1, f"{found} unfinished uploads were found instead of 1")
    return "unfinished uploads are listed"


async def _conditional_put(bench: Bench) -> str:
    key = bench.key("o")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(bench.objects.create(key, str(number).encode()))
            for number in range(_RACERS)
        ]
    won = [bool(task.result()) for task in tasks]
    _expect(
        sum(won) == 1,
        f"{sum(won)} of {_RACERS} writers that each were to be the only one succeeded",
    )
    found = await bench.objects.get(key)
    _expect(found == str(won.index(True)).encode(), "the loser's object was kept")
    _expect(not await bench.objects.create(key, b"late"), "an object was replaced")
    return "If-None-Match lets exactly one writer succeed"


async def _conditional_upload(bench: Bench) -> str:
    key = bench.key("o")
    upload = await bench.objects.start_upload(key, _PART_BYTES)
    try:
        await upload.put_part(1, b"late")
        await bench.objects.put(key, b"first")
        _expect(not await upload.complete(), "an object was replaced by parts")
    finally:
        await upload.abort()
    _expect(await bench.objects.get(key) == b"first", "the object is another one")
    return "If-None-Match keeps parts from replacing an object"


async def _conditional_replace(bench: Bench) -> str:
    key = bench.key("o")
    await bench.objects.put(key, b"first")
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(bench.objects.replace(key, str(number).encode(), found=b"first"))
            for number in range(_RACERS)
        ]
    won = [bool(task.result()) for task in tasks]
    _expect(sum(won) == 1, f"{sum(won)} of {_RACERS} writers replaced the same object")
    found = await bench.objects.get(key)
    _expect(found == str(won.index(True)).encode(), "the loser's object was kept")
    return "If-Match lets exactly one writer replace what it has read"


async def _listing(bench: Bench) -> str:
    keys = sorted(bench.key(f"{number % 3}/{number:02}.log") for number in range(_LISTED))
    for number, key in enumerate(keys):
        await bench.objects.put(key, bytes(number))
    listed = [(at.key, at.size_bytes) async for at in bench.objects.list_objects(bench.folder)]
    _expect([key for key, _ in listed] == keys, "keys are missing, or not in their order")
    _expect([size for _, size in listed] == list(range(_LISTED)), "sizes in the listing are wrong")
    below = [at.key async for at in bench.objects.list_objects(bench.key("1/"))]
    _expect(below == [key for key in keys if "/1/" in key], "a prefix does not narrow the listing")
    return "listings are complete, in the order of keys, with sizes"


async def _deletion(bench: Bench) -> str:
    keys = [bench.key(name) for name in ("a", "b", "c")]
    for key in keys:
        await bench.objects.put(key, b"1")
    await bench.objects.delete([keys[0], keys[1]])
    await bench.objects.delete([keys[0], bench.key("never")])
    left = [at.key async for at in bench.objects.list_objects(bench.folder)]
    _expect(left == [keys[2]], f"{len(left)} objects are left instead of 1")
    return "objects go one by one, and twice without harm"


async def _clock(bench: Bench) -> str:
    before_ms = bench.clock.now_ms()
    store_ms = await bench.tested.store_time_ms()
    after_ms = bench.clock.now_ms()
    _expect(store_ms is not None, "the store does not tell its time")
    skew_ms = (store_ms or 0) - (before_ms + after_ms) // 2
    text = (
        f"the store's clock is {abs(skew_ms) / 1000:.1f} s {'ahead' if skew_ms > 0 else 'behind'}"
    )
    if abs(skew_ms) >= _SKEW_REFUSED_MS:
        raise UnmetError(f"{text}; signatures are refused from 15 min on")
    _expect(abs(skew_ms) <= _SKEW_NOTED_MS, text)
    return text


STORE_CHECKS: Final = (
    Check(name="consistency", run=_consistency),
    Check(name="ranged-reads", run=_ranged_reads),
    Check(name="checksums", run=_checksums),
    Check(
        name="damaged-bodies",
        run=_damaged_bodies,
        without="damage on the way to the store is found when a segment is verified or read, not when it is copied",
    ),
    Check(name="missing-objects", run=_missing_objects),
    Check(name="multipart", run=_multipart),
    Check(name="multipart-abort", run=_multipart_abort),
    Check(
        name="upload-listing",
        run=_upload_listing,
        without="uploads of crashed processes are not swept: give the bucket a life-cycle rule for them",
    ),
    Check(
        name="conditional-put",
        run=_conditional_put,
        without="two copies of one segment at once are kept apart by the metadata service alone",
    ),
    Check(
        name="conditional-upload",
        run=_conditional_upload,
        without="as without conditional-put, for segments that go up in parts",
    ),
    Check(
        name="conditional-replace",
        run=_conditional_replace,
        without="rewrapping beside a deletion may leave a manifest without its log, which a scrub finds",
    ),
    Check(name="listing", run=_listing),
    Check(name="deletion", run=_deletion),
    Check(
        name="clock",
        run=_clock,
        without="signatures are refused when it is 15 min wrong, and ages of uploads are misjudged",
    ),
)
