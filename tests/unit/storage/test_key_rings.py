"""Key rings in files: RSA and AES keys, reloading, keys that are missing or wrong."""

import asyncio
import os
from pathlib import Path

import pytest
from aquifer_core.errors import ErrorReason, InvalidConfigurationError, PreconditionError
from aquifer_storage.adapters.file_key_ring import FileKeyRing
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fixtures.key_rings import (
    KeyRingFiles,
    aes_key,
    new_key_ring,
    private_pem,
    public_pem,
    rsa_key,
)

DATA_KEY = os.urandom(32)


@pytest.mark.parametrize("content", [aes_key(), private_pem(rsa_key("a"))], ids=["aes", "rsa"])
async def test_a_key_opens_what_it_wrapped(tmp_path: Path, content: bytes) -> None:
    files = KeyRingFiles(tmp_path)
    files.put("a", content)
    files.activate("a")
    ring = FileKeyRing(files.path)
    wrapped = await ring.wrap(DATA_KEY)
    assert wrapped.key_id == await ring.active_key_id() == "a"
    assert DATA_KEY not in wrapped.data
    assert await FileKeyRing(files.path).unwrap(wrapped) == DATA_KEY


async def test_an_older_key_opens_when_another_is_active_without_a_restart(tmp_path: Path) -> None:
    files = new_key_ring(tmp_path, "a")
    ring = FileKeyRing(files.path)
    wrapped = await ring.wrap(DATA_KEY)
    files.put("b")
    files.activate("b")
    assert await ring.active_key_id() == "b"
    assert (await ring.wrap(DATA_KEY)).key_id == "b"
    assert await ring.unwrap(wrapped) == DATA_KEY


async def test_a_missing_key_is_named(tmp_path: Path) -> None:
    files = new_key_ring(tmp_path, "a")
    ring = FileKeyRing(files.path)
    wrapped = await ring.wrap(DATA_KEY)
    files.put("b")
    files.remove("a", active="b")
    with pytest.raises(PreconditionError, match="'a'") as raised:
        await ring.unwrap(wrapped)
    assert raised.value.reason is ErrorReason.ENCRYPTION_KEY_UNAVAILABLE
    assert raised.value.metadata == {"keyId": "a"}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (aes_key(), aes_key()),
        (aes_key(), private_pem(rsa_key("a"))),
        (private_pem(rsa_key("a")), private_pem(rsa_key("b"))),
        (private_pem(rsa_key("a")), public_pem(rsa_key("a"))),
    ],
    ids=["another AES key", "another kind", "another RSA key", "only the public half"],
)
async def test_a_key_that_does_not_open_is_named(tmp_path: Path, first: bytes, then: bytes) -> None:
    files = KeyRingFiles(tmp_path)
    files.put("a", first)
    files.activate("a")
    ring = FileKeyRing(files.path)
    wrapped = await ring.wrap(DATA_KEY)
    files.put("a", then)
    files.activate("a")
    with pytest.raises(PreconditionError, match="'a'") as raised:
        await ring.unwrap(wrapped)
    assert raised.value.reason is ErrorReason.ENCRYPTION_KEY_UNAVAILABLE


async def test_a_public_key_is_enough_to_write(tmp_path: Path) -> None:
    files = KeyRingFiles(tmp_path)
    files.put("a", public_pem(rsa_key("a")))
    files.activate("a")
    wrapped = await FileKeyRing(files.path).wrap(DATA_KEY)
    files.put("a", private_pem(rsa_key("a")))
    assert await FileKeyRing(files.path).unwrap(wrapped) == DATA_KEY


async def test_a_ring_that_becomes_unreadable_stays_as_it_was(tmp_path: Path) -> None:
    files = new_key_ring(tmp_path, "a")
    ring = FileKeyRing(files.path)
    wrapped = await ring.wrap(DATA_KEY)
    for content in (
        b"{",
        b'{"active": "b", "keys": {"a": "a.key"}}',
        b'{"active": "a", "keys": 5}',
    ):
        files.path.write_bytes(content)
        assert await ring.unwrap(wrapped) == DATA_KEY
    files.path.unlink()
    assert await ring.unwrap(wrapped) == DATA_KEY
    files.put("b")
    files.activate("b")
    assert await ring.active_key_id() == "b"


async def test_a_key_that_comes_after_the_ring_that_names_it_is_taken_once_it_is_whole(
    tmp_path: Path,
) -> None:
    """Files are put in place one by one, and in any order; nobody touches the ring again for that."""
    files = new_key_ring(tmp_path, "a")
    ring = FileKeyRing(files.path)
    assert await ring.active_key_id() == "a"
    files.put("b")
    whole = (tmp_path / "b.key").read_bytes()
    (tmp_path / "b.key").unlink()
    files.activate("b")
    for content in (None, b"", whole[:20]):
        if content is not None:
            (tmp_path / "b.key").write_bytes(content)
        assert await ring.active_key_id() == "a"
    (tmp_path / "b.key").write_bytes(whole)
    assert await ring.active_key_id() == "b"
    assert (await ring.wrap(DATA_KEY)).key_id == "b"


async def test_a_ring_that_is_put_right_under_its_former_time_is_read_again(tmp_path: Path) -> None:
    """As after chmod or cp -p: only the time of the change of the file's state tells."""
    files = new_key_ring(tmp_path, "a")
    ring = FileKeyRing(files.path)
    await ring.check()
    files.put("b")
    files.activate("b")
    good = files.path.read_bytes()
    files.path.write_bytes(b"{" * len(good))
    times = files.path.stat()
    assert await ring.active_key_id() == "a"
    files.path.write_bytes(good)
    os.utime(files.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert await ring.active_key_id() == "b"


async def test_who_is_cancelled_while_a_changed_ring_is_read_hides_it_from_nobody(
    tmp_path: Path,
) -> None:
    files = new_key_ring(tmp_path, "a")
    files.put("b")
    ring = FileKeyRing(files.path)
    await ring.check()
    for number in range(60):
        files.activate("ab"[number % 2])
        reading = asyncio.create_task(ring.active_key_id())
        for _ in range(number // 4):
            await asyncio.sleep(0.0001 * (number % 3))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await ring.active_key_id() == "ab"[number % 2]


SMALL = private_pem(rsa_key("small", 1024))
CURVE = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)


@pytest.mark.parametrize(
    "content",
    [b"short", b"AAAA", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----", SMALL, CURVE],
    ids=["no base64", "too short", "broken PEM", "small RSA", "elliptic curve"],
)
async def test_a_key_that_cannot_be_used_stops_the_start_and_stays_secret(
    tmp_path: Path, content: bytes
) -> None:
    files = KeyRingFiles(tmp_path)
    files.put("a", content)
    files.activate("a")
    with pytest.raises(InvalidConfigurationError, match="'a'") as raised:
        await FileKeyRing(files.path).check()
    assert content.decode() not in raised.value.message or content == b"short"


@pytest.mark.parametrize(
    "content", [None, b"[]", b"x", b'{"keys": {}}', b'{"active": 1, "keys": {}}']
)
async def test_a_file_that_is_no_ring_stops_the_start(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ring.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidConfigurationError, match=r"ring\.json"):
        await FileKeyRing(path).check()
