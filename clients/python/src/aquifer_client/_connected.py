"""What the clients of a role have in common: configured once, connected, closed."""

from collections.abc import Mapping

from aquifer_core.errors import InvalidConfigurationError
from aquifer_rpc.channel import Channel, connect

from aquifer_client._config import RemoteRoleConfig


class Connection:
    """A channel that is made by `configure` and gone after `close`."""

    def __init__(self) -> None:
        self._config: RemoteRoleConfig | None = None
        self._channel: Channel | None = None

    def open(self, configs: Mapping[str, str]) -> Channel:
        """Connects as configured.

        Raises:
            InvalidConfigurationError: refused properties, or configured already.
        """
        if self._channel is not None:
            raise InvalidConfigurationError("configured already; make another one")
        self._config = RemoteRoleConfig.parse(configs)
        self._channel = connect(self._config.endpoints, settings=self._config.client_settings())
        return self._channel

    @property
    def config(self) -> RemoteRoleConfig:
        """What was configured.

        Raises:
            InvalidConfigurationError: nothing yet.
        """
        if self._config is None:
            raise InvalidConfigurationError("not configured yet; call configure first")
        return self._config

    async def close(self) -> None:
        """Closes the channel; idempotent."""
        if self._channel is not None:
            await self._channel.close()
