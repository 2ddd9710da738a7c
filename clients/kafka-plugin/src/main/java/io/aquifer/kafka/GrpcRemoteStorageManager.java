package io.aquifer.kafka;

import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataResponse;
import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import io.aquifer.kafka.convert.StorageErrors;
import io.aquifer.kafka.storage.StorageClient;
import io.aquifer.kafka.telemetry.Operation;
import io.aquifer.kafka.telemetry.Telemetry;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kafka's {@link RemoteStorageManager} on Aquifer's storage services.
 *
 * <p>Safe for any number of threads. Data methods throw {@link RemoteStorageException} or its subclass for what is not there, and
 * nothing else. An interrupt ends the call and leaves the thread's interrupt flag set.
 */
public final class GrpcRemoteStorageManager implements RemoteStorageManager {
    private static final Logger LOG = LoggerFactory.getLogger(GrpcRemoteStorageManager.class);

    private volatile Parts parts;

    private record Parts(StorageClient client, Telemetry telemetry) {
    }

    /** Kafka makes it, then calls {@link #configure}. */
    public GrpcRemoteStorageManager() {
    }

    /**
     * Reads the properties below {@code rsm.config.}; nothing is connected yet, so the services may start later than the broker.
     *
     * @throws ConfigException in one line what is missing or refused.
     */
    @Override
    public void configure(Map<String, ?> configs) {
        try {
            Settings settings = Settings.parse(Role.STORAGE, configs);
            StorageClient client = new StorageClient(settings);
            Telemetry telemetry = new Telemetry(settings, "GrpcRemoteStorageManager");
            client.showIn(telemetry);
            parts = new Parts(client, telemetry);
            LOG.info("Aquifer storage at {} (TLS: {})", settings.endpoints(), settings.tls());
        } catch (SettingsException error) {
            throw new ConfigException(error.getMessage());
        }
    }

    /** Copies the segment; when it returns, the data is readable. */
    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RemoteStorageException {
        Parts ready = ready();
        try (Operation operation = begin(ready, "copy", metadata)) {
            try {
                CopyLogSegmentDataResponse answer = ready.client().copy(operation, metadata, data);
                return answer.hasCustomMetadata()
                        ? Optional.of(new CustomMetadata(answer.getCustomMetadata().toByteArray()))
                        : Optional.empty();
            } catch (Exception error) {
                throw operation.failed(StorageErrors.of("copying " + metadata.remoteLogSegmentId(), error));
            }
        }
    }

    /** Opens the segment from a position to its end. */
    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition) throws RemoteStorageException {
        return fetch(metadata, startPosition, null);
    }

    /** Opens the segment between two positions, both inclusive; a shorter segment just ends. */
    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition, int endPosition)
            throws RemoteStorageException {
        return fetch(metadata, startPosition, (long) endPosition);
    }

    /** Reads a whole index. */
    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType indexType) throws RemoteStorageException {
        Parts ready = ready();
        try (Operation operation = begin(ready, "fetchIndex", metadata)) {
            operation.reading(indexType.name());
            try {
                return new ByteArrayInputStream(ready.client().fetchIndex(operation, metadata, indexType));
            } catch (Exception error) {
                throw operation.failed(StorageErrors.of(
                        "fetching the " + indexType + " index of " + metadata.remoteLogSegmentId(), error));
            }
        }
    }

    /** Deletes the segment with its indexes; already gone is success. */
    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        Parts ready = ready();
        try (Operation operation = begin(ready, "delete", metadata)) {
            try {
                ready.client().delete(operation, metadata);
            } catch (Exception error) {
                throw operation.failed(StorageErrors.of("deleting " + metadata.remoteLogSegmentId(), error));
            }
        }
    }

    /** Ends every connection; calls under way fail. */
    @Override
    public void close() {
        Parts open = parts;
        parts = null;
        if (open != null) {
            open.client().close();
            open.telemetry().close();
        }
    }

    private InputStream fetch(RemoteLogSegmentMetadata metadata, int start, Long endInclusive) throws RemoteStorageException {
        Parts ready = ready();
        Operation operation = begin(ready, "fetch", metadata);
        try {
            return ready.client().fetch(operation, metadata, start, endInclusive);
        } catch (Exception error) {
            try (operation) {
                throw operation.failed(StorageErrors.of(
                        "fetching " + metadata.remoteLogSegmentId() + " from position " + start, error));
            }
        }
    }

    private Parts ready() throws RemoteStorageException {
        Parts ready = parts;
        if (ready == null) {
            throw new RemoteStorageException("the storage manager is not configured, or closed");
        }
        return ready;
    }

    private static Operation begin(Parts ready, String name, RemoteLogSegmentMetadata metadata) {
        return ready.telemetry().begin(name, metadata.remoteLogSegmentId().toString());
    }
}
