package io.aquifer.kafka;

import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import io.aquifer.kafka.metadata.MetadataClient;
import io.aquifer.kafka.telemetry.Telemetry;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kafka's {@link RemoteLogMetadataManager} on Aquifer's metadata services.
 *
 * <p>Safe for any number of threads. Queries are answered from memory, which a watch of every assigned partition keeps fresh; they throw
 * {@link RemoteStorageException} or its subclass for what is not there, and Kafka's {@code ReplicaNotAvailableException}, which clients
 * retry, while a partition is still loading. Futures of writes complete when this broker's own queries show the write. While the services
 * are away queries go on with what is known.
 */
public final class GrpcRemoteLogMetadataManager implements RemoteLogMetadataManager {
    private static final Logger LOG = LoggerFactory.getLogger(GrpcRemoteLogMetadataManager.class);

    private volatile Parts parts;

    private record Parts(MetadataClient client, Telemetry telemetry) {
    }

    /** Kafka makes it, then calls {@link #configure}. */
    public GrpcRemoteLogMetadataManager() {
    }

    /**
     * Reads the properties below {@code rlmm.config.}; nothing is connected yet, so the services may start later than the broker.
     *
     * @throws ConfigException in one line what is missing or refused.
     */
    @Override
    public void configure(Map<String, ?> configs) {
        try {
            Settings settings = Settings.parse(Role.METADATA, configs);
            Telemetry telemetry = new Telemetry(settings, "GrpcRemoteLogMetadataManager");
            parts = new Parts(connected(settings, telemetry), telemetry);
            LOG.info("Aquifer metadata at {} (TLS: {})", settings.endpoints(), settings.tls());
        } catch (SettingsException error) {
            throw new ConfigException(error.getMessage());
        }
    }

    /** Records the start of a copy; the state must be COPY_SEGMENT_STARTED. */
    @Override
    public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        Objects.requireNonNull(metadata, "metadata");
        if (metadata.state() != RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
            throw new IllegalArgumentException("a segment is added in COPY_SEGMENT_STARTED, not in " + metadata.state());
        }
        return client().add(metadata);
    }

    /** Moves a segment to another state; the state must not be COPY_SEGMENT_STARTED. */
    @Override
    public CompletableFuture<Void> updateRemoteLogSegmentMetadata(RemoteLogSegmentMetadataUpdate update) throws RemoteStorageException {
        Objects.requireNonNull(update, "update");
        if (update.state() == RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
            throw new IllegalArgumentException("a segment is not updated to COPY_SEGMENT_STARTED; add it");
        }
        return client().update(update);
    }

    /** The finished segment that holds the offset in the leader epoch. */
    @Override
    public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(TopicIdPartition partition, int epochForOffset, long offset)
            throws RemoteStorageException {
        return client().find(partition, epochForOffset, offset);
    }

    /** Highest offset ever finished in the leader epoch, deleted segments included. */
    @Override
    public Optional<Long> highestOffsetForEpoch(TopicIdPartition partition, int leaderEpoch) throws RemoteStorageException {
        return client().highestOffset(partition, leaderEpoch);
    }

    /** Records a step of the deletion of a partition's remote data. */
    @Override
    public CompletableFuture<Void> putRemotePartitionDeleteMetadata(RemotePartitionDeleteMetadata metadata)
            throws RemoteStorageException {
        return client().delete(Objects.requireNonNull(metadata, "metadata"));
    }

    /** Every segment that is not DELETE_SEGMENT_FINISHED, by start offset. */
    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition partition) throws RemoteStorageException {
        return client().list(partition);
    }

    /** Those of a leader epoch, by start offset. */
    @Override
    public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition partition, int leaderEpoch)
            throws RemoteStorageException {
        return client().list(partition, leaderEpoch).iterator();
    }

    /** Begins to watch the partitions; returns at once, and what is watched already stays so. */
    @Override
    public void onPartitionLeadershipChanges(Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) {
        Parts ready = parts;
        if (ready != null) {
            Set<TopicIdPartition> assigned = new HashSet<>(leaders);
            assigned.addAll(followers);
            ready.client().assign(assigned);
        }
    }

    /** Forgets the partitions; returns at once. Their metadata stays with the service. */
    @Override
    public void onStopPartitions(Set<TopicIdPartition> partitions) {
        Parts ready = parts;
        if (ready != null) {
            ready.client().stop(partitions);
        }
    }

    /** Sum of the sizes of the listed segments of a leader epoch. */
    @Override
    public long remoteLogSize(TopicIdPartition partition, int leaderEpoch) throws RemoteStorageException {
        return client().list(partition, leaderEpoch).stream().mapToLong(RemoteLogSegmentMetadata::segmentSizeInBytes).sum();
    }

    /** The first finished segment at or after the offset, in the epoch's unbroken chain, that may have a transaction index. */
    @Override
    public Optional<RemoteLogSegmentMetadata> nextSegmentWithTxnIndex(TopicIdPartition partition, int epoch, long offset)
            throws RemoteStorageException {
        return client().findWithTxnIndex(partition, epoch, offset);
    }

    /** Whether the partition's view is complete; no call is made. */
    @Override
    public boolean isReady(TopicIdPartition partition) {
        Parts ready = parts;
        return ready != null && ready.client().isReady(partition);
    }

    /** Ends every connection; writes under way fail. */
    @Override
    public void close() {
        Parts open = parts;
        parts = null;
        if (open != null) {
            open.client().close();
            open.telemetry().close();
        }
    }

    private static MetadataClient connected(Settings settings, Telemetry telemetry) {
        try {
            return new MetadataClient(settings, telemetry);
        } catch (SettingsException error) {
            telemetry.close();
            throw error;
        }
    }

    private MetadataClient client() throws RemoteStorageException {
        Parts ready = parts;
        if (ready == null) {
            throw new RemoteStorageException("the metadata manager is not configured, or closed");
        }
        return ready.client();
    }
}
