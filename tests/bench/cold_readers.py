"""Consumers that read the beginning of a topic again and again until they are terminated.

python -m bench.cold_readers BOOTSTRAP TOPIC COUNT      prints "reading" once records have come
"""

import sys
import threading

from confluent_kafka import Consumer, TopicPartition

_RECORDS = 20_000
_BATCH = 2000


def main() -> None:
    """Runs until it is terminated."""
    bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    begun = threading.Event()
    for number in range(count):
        threading.Thread(target=_read, args=(bootstrap, topic, number, begun), daemon=True).start()
    if begun.wait(60):
        sys.stdout.write("reading\n")
        sys.stdout.flush()
        threading.Event().wait()


def _read(bootstrap: str, topic: str, number: int, begun: threading.Event) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"cold-{number}"})
    while True:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = _RECORDS
        while left > 0:
            messages = consumer.consume(_BATCH, 1.0)
            left -= len(messages)
            if messages:
                begun.set()
            if any(message.error() is not None for message in messages):
                break


if __name__ == "__main__":
    main()
