"""The command line tools of Apache Kafka, each run in a JVM of its own."""

from collections.abc import Sequence
from typing import IO, Final

from aquifer_core.errors import UnavailableError

from aquifer_standalone.kafka.installation import KafkaInstallation
from aquifer_standalone.programs import run_program

_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaTools:
    """Runs the tools of a release against a cluster."""

    def __init__(self, installation: KafkaInstallation, bootstrap: str) -> None:
        self._installation = installation
        self._bootstrap = bootstrap

    async def console_consumer(
        self,
        topic: str,
        count: int,
        *options: str,
        shown: Sequence[str],
        timeout_s: float = 120.0,
        output: IO[bytes] | None = None,
    ) -> bytes:
        """Consume so many records from offset 0 and return what was printed: a line a record, with tabs between its fields.

        Args:
            shown: what precedes the value: timestamp, partition, offset, key; printed in this order.
            options: of the consumer.

        Raises:
            UnavailableError, TimeoutError: as `run`.
        """
        # Before Kafka 4.2 the option had the old name; since then the old name prints a warning among the records.
        option = "--formatter-property" if self._installation.release >= (4, 2) else "--property"
        return await self.run(
            _CONSUMER,
            *("--topic", topic, "--from-beginning", "--max-messages", str(count), *options),
            *(part for field in shown for part in (option, f"print.{field}=true")),
            timeout_s=timeout_s,
            output=output,
        )

    async def run(
        self,
        main_class: str,
        *arguments: str,
        timeout_s: float = 120.0,
        output: IO[bytes] | None = None,
    ) -> bytes:
        """Run a tool with `--bootstrap-server` and return what it wrote to standard output, unless that is a file.

        Raises:
            UnavailableError: it failed; the text has the end of its error output.
            TimeoutError: it did not end in time.
        """
        argv = self._installation.argv(
            main_class,
            *("--bootstrap-server", self._bootstrap, *arguments),
            jvm=_JVM,
            log_level="ERROR",
        )
        ended = await run_program(argv, timeout_s=timeout_s, output=output, errors_apart=True)
        if ended.exit_code != 0:
            raise UnavailableError(f"{main_class} failed: {ended.tail}")
        return ended.output
