"""Keys of a broker that Kafka does not have: where the suite's services are, and how they are spoken to."""

from typing import Final

from aquifer_broker.config.definitions import ConfigType, at_least, define, not_empty, one_of

__all__ = ["SUITE_DEFINITIONS"]

_S, _I, _L, _LIST = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST

SUITE_DEFINITIONS: Final = (
    define(
        "aquifer.metadata.endpoints",
        _LIST,
        (),
        "host:port of the metadata service's replicas. Mandatory.",
        validator=not_empty,
    ),
    define(
        "aquifer.manager.endpoints",
        _LIST,
        (),
        "host:port of the manager's replicas; mandatory when remote storage is enabled.",
    ),
    define(
        "aquifer.broker.log.service.listener",
        _S,
        "127.0.0.1:0",
        "host:port on which BrokerLogService is served to the manager.",
    ),
    define(
        "aquifer.broker.log.service.advertised",
        _S,
        None,
        "host:port as the manager reaches BrokerLogService; unset: the listener.",
    ),
    define(
        "aquifer.tls.ca.file",
        _S,
        None,
        "PEM authorities of the suite; set: TLS to metadata, manager and the gRPC roles, which must have certificates of these.",
    ),
    define(
        "aquifer.tls.certificate.file",
        _S,
        None,
        "PEM chain of this broker, shown to services that ask; set: BrokerLogService has TLS and takes only callers with a certificate.",
    ),
    define("aquifer.tls.key.file", _S, None, "PEM private key of that certificate."),
    define(
        "aquifer.tls.server.name",
        _S,
        None,
        "Name expected in the services' certificates; unset: the host of the endpoint.",
    ),
    define(
        "aquifer.lost.log.dirs",
        _LIST,
        (),
        "Directory ids, as in `meta.properties`, of log dirs that are lost for good; what only they held goes on without it.",
    ),
    define(
        "aquifer.remote.fetch.path",
        _S,
        "direct",
        "Whether tiered reads, planned by the manager, go directly to storage or through the manager as well.",
        validator=one_of("manager", "direct"),
    ),
    define(
        "aquifer.remote.fetch.read.ahead.bytes",
        _I,
        8_388_608,
        "Most bytes of a partition that are read at once, and ahead, for a consumer that reads on; 0: what it asks for.",
        validator=at_least(0),
    ),
    define(
        "aquifer.remote.fetch.max.loop.delay.ms",
        _I,
        2,
        "How late the event loop may wake up beside producers and readers of local records before fewer tiered reads are made at once,"
        " one at least; 0: reads do not give way.",
        validator=at_least(0),
    ),
    define(
        "aquifer.response.max.bytes",
        _L,
        536_870_912,
        "Bytes of fetched records held for clients at once; beyond, fetches get less.",
        validator=at_least(1_048_576),
    ),
    define(
        "aquifer.telemetry.endpoint",
        _S,
        None,
        "OTLP endpoint for traces and metrics; unset: none are sent.",
    ),
    define(
        "aquifer.log.format",
        _S,
        "console",
        "Form of the process's log lines.",
        validator=one_of("console", "json"),
    ),
    define(
        "aquifer.log.level",
        _S,
        "info",
        "Least level of the process's log lines.",
        validator=one_of("debug", "info", "warning", "error"),
    ),
)
