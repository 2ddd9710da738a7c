package io.aquifer.kafka.config;

import java.util.Arrays;
import java.util.Optional;

/**
 * Every property of the plugin: its name below {@code rsm.config.} or {@code rlmm.config.}, its default and what it means.
 *
 * <p>Names are the same for both managers; each reads those that concern it.
 */
public enum Property {
    STORAGE_ENDPOINTS("aquifer.storage.endpoints", null, "Storage services as host:port, separated by commas; required below `rsm.config.`."),
    METADATA_ENDPOINTS("aquifer.metadata.endpoints", null, "Metadata services as host:port, separated by commas; required below `rlmm.config.`."),
    TLS_ENABLE("aquifer.tls.enable", "false", "Whether connections use TLS. Naming any other `aquifer.tls` property turns it on."),
    TLS_CA_FILE("aquifer.tls.ca.file", null, "PEM file of the authorities that sign the services' certificates; unset: those of the JVM."),
    TLS_CERTIFICATE_FILE("aquifer.tls.certificate.file", null, "PEM file of the broker's own certificate chain, for services that ask for one (mTLS)."),
    TLS_KEY_FILE("aquifer.tls.key.file", null, "PEM file (PKCS#8) of the broker's own key; with the certificate or not at all."),
    TLS_SERVER_NAME("aquifer.tls.server.name", null, "Name expected in the services' certificates; unset: the host of the endpoint."),
    TLS_RELOAD_MS("aquifer.tls.reload.ms", "5000", "How often, when a call begins, the files are looked at; those that changed are read again."),
    DEADLINE_MS("aquifer.deadline.ms", "30000", "Deadline of a call with one answer (metadata, deletion), all attempts together."),
    COPY_DEADLINE_MS("aquifer.copy.deadline.ms", "600000", "Deadline of the copy of one segment."),
    FETCH_DEADLINE_MS("aquifer.fetch.deadline.ms", "600000", "Deadline of one read of a segment or index, from opening to closing it."),
    STALL_MS("aquifer.stall.ms", "30000", "Longest wait for the next piece while bytes are sent or received; then the attempt counts as failed."),
    MAX_ATTEMPTS("aquifer.max.attempts", "5", "Attempts of one call, the first included."),
    RETRY_BACKOFF_MS("aquifer.retry.backoff.ms", "50", "Pause before the first retry; doubles, with jitter. What the service asks for (`RetryInfo`) wins."),
    RETRY_BACKOFF_MAX_MS("aquifer.retry.backoff.max.ms", "2000", "Longest pause between retries, unless the service asks for more."),
    CONNECT_TIMEOUT_MS("aquifer.connect.timeout.ms", "2000", "Longest time to establish a connection."),
    KEEPALIVE_MS("aquifer.keepalive.ms", "20000", "Idle time after which a connection is probed; services refuse less than 10000."),
    KEEPALIVE_TIMEOUT_MS("aquifer.keepalive.timeout.ms", "10000", "A probe that is not answered in this time ends the connection."),
    ENDPOINT_DOWN_MS("aquifer.endpoint.down.ms", "1000", "With several endpoints: how long one that did not answer is asked last."),
    FETCH_WINDOW_BYTES("aquifer.fetch.window.bytes", "1048576", "Bytes of a stream that may be under way before the broker reads them."),
    FETCH_KEEP_MS("aquifer.fetch.keep.ms", "2000", "How long a stream that the broker closed before its end waits, stopped, for a read that goes on there; then it is ended."),
    FETCH_KEEP_BYTES("aquifer.fetch.keep.bytes", "67108864", "Memory for such streams, two to five MiB each; the one that waited longest is ended first. 0: each is ended when it is closed."),
    VISIBLE_WAIT_MS("aquifer.metadata.visible.wait.ms", "120000", "Longest wait until a metadata write shows in this broker's own view; then its future fails."),
    READY_WAIT_MS("aquifer.metadata.ready.wait.ms", "2000", "Longest wait of a query for a partition whose view is still loading; then it fails."),
    WATCH_DEADLINE_MS("aquifer.metadata.watch.deadline.ms", "600000", "Age at which a watch is renewed; nothing is lost between."),
    WATCH_BACKOFF_MAX_MS("aquifer.metadata.watch.backoff.max.ms", "2000", "Longest pause before a broken watch is opened again."),
    LOADS_AT_ONCE("aquifer.metadata.loads.at.once", "16", "Partitions whose view is loaded at the same time."),
    WRITES_AT_ONCE("aquifer.metadata.writes.at.once", "16", "Metadata writes under way at the same time; further ones wait."),
    TELEMETRY_ENDPOINT("aquifer.telemetry.endpoint", null, "OTLP/gRPC collector as http://host:port; unset: no traces, no metrics but JMX."),
    TELEMETRY_SAMPLE_RATIO("aquifer.telemetry.sample.ratio", "1.0", "Share of traces that are recorded."),
    TELEMETRY_INTERVAL_MS("aquifer.telemetry.interval.ms", "15000", "How often metrics are sent.");

    /** What every name begins with. */
    public static final String PREFIX = "aquifer.";

    private final String key;
    private final String defaultText;
    private final String meaning;

    Property(String key, String defaultText, String meaning) {
        this.key = key;
        this.defaultText = defaultText;
        this.meaning = meaning;
    }

    /** The name without Kafka's prefix. */
    public String key() {
        return key;
    }

    /** The default as text; empty when there is none. */
    public Optional<String> defaultText() {
        return Optional.ofNullable(defaultText);
    }

    /** What it does, for people. */
    public String meaning() {
        return meaning;
    }

    /** The property of a name. */
    public static Optional<Property> of(String key) {
        return Arrays.stream(values()).filter(each -> each.key.equals(key)).findFirst();
    }
}
