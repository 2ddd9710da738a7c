"""Consumers that read the beginning of a topic again and again until they are terminated.

python -m bench.topic_readers BOOTSTRAP TOPIC COUNT [RECORDS_PER_S]      prints "reading" once records have come
"""

import sys
import threading
import time

from confluent_kafka import Consumer, TopicPartition

_RECORDS = 20_000
_BATCH = 2000
_PACED_BATCH = 200
_PACED_QUEUE_KIB = 1024


def main() -> None:
    """Runs until it is terminated."""
    bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pace = float(sys.argv[4]) if len(sys.argv) > 4 else None
    begun = threading.Event()
    for number in range(count):
        args = (bootstrap, topic, number, pace, begun)
        threading.Thread(target=_read, args=args, daemon=True).start()
    if begun.wait(60):
        sys.stdout.write("reading\n")
        sys.stdout.flush()
        threading.Event().wait()


def _read(
    bootstrap: str, topic: str, number: int, pace: float | None, begun: threading.Event
) -> None:
    """As fast as records come, or so many a second."""
    config: dict[str, str | int] = {"bootstrap.servers": bootstrap, "group.id": f"reader-{number}"}
    batch = _BATCH
    if pace is not None:
        # Or the client would fetch 64 MiB ahead at full speed first.
        config["queued.max.messages.kbytes"] = _PACED_QUEUE_KIB
        batch = _PACED_BATCH
    consumer = Consumer(config)
    started, read = time.monotonic(), 0
    while True:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = _RECORDS
        while left > 0:
            messages = consumer.consume(batch, 1.0)
            left -= len(messages)
            read += len(messages)
            if messages:
                begun.set()
            if any(message.error() is not None for message in messages):
                break
            if pace is not None:
                time.sleep(max(0.0, started + read / pace - time.monotonic()))


if __name__ == "__main__":
    main()
