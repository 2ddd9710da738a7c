package io.aquifer.kafka.metadata;

import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.GetHighestOffsetForEpochRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.GetHighestOffsetForEpochResponse;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.convert.StorageErrors;
import io.aquifer.kafka.rpc.Caller;
import io.aquifer.kafka.rpc.Endpoints;
import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import io.aquifer.kafka.telemetry.Telemetry;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * The metadata service with local views of the partitions of this broker. Queries are answered from the views; the one exception is the
 * highest offset of an epoch, which the service is asked for once, because it counts deleted segments too. Safe for any number of threads.
 */
public final class MetadataClient implements AutoCloseable {
    private final Endpoints endpoints;
    private final Telemetry telemetry;
    private final Caller caller;
    private final ScheduledExecutorService scheduler;
    private final PartitionViews views;
    private final MetadataWrites writes;
    private final long readyWaitNanos;

    /** A client; nothing is connected before the first partition is assigned. */
    public MetadataClient(Settings settings, Telemetry telemetry) {
        this.telemetry = telemetry;
        endpoints = Endpoints.open(settings);
        caller = new Caller(endpoints, settings);
        scheduler = Executors.newSingleThreadScheduledExecutor(named("aquifer-metadata-watch"));
        ExecutorService writers = Executors.newFixedThreadPool(settings.number(Property.WRITES_AT_ONCE), named("aquifer-metadata-write"));
        views = new PartitionViews(endpoints, scheduler, settings);
        writes = new MetadataWrites(caller, views, writers, telemetry, settings);
        readyWaitNanos = settings.duration(Property.READY_WAIT_MS).toNanos();
        endpoints.showIn(telemetry);
        telemetry.gauge("Partitions", "metadata.partitions", views::count);
        telemetry.gauge("PartitionsReady", "metadata.partitions.ready", views::readyCount);
        telemetry.gauge("Segments", "metadata.segments", views::segmentCount);
    }

    /** Begins to watch partitions; returns at once. */
    public void assign(Set<TopicIdPartition> partitions) {
        views.assign(partitions);
    }

    /** Forgets partitions; returns at once. */
    public void stop(Set<TopicIdPartition> partitions) {
        views.stop(partitions);
    }

    /** Whether a partition's view is complete; no call. */
    public boolean isReady(TopicIdPartition partition) {
        return views.view(partition).map(PartitionView::isReady).orElse(false);
    }

    /** Records the start of a copy. */
    public CompletableFuture<Void> add(RemoteLogSegmentMetadata metadata) {
        return writes.add(metadata);
    }

    /** Moves a segment to another state. */
    public CompletableFuture<Void> update(RemoteLogSegmentMetadataUpdate update) {
        return writes.update(update);
    }

    /** Records a step of a partition's deletion. */
    public CompletableFuture<Void> delete(RemotePartitionDeleteMetadata deletion) {
        return writes.delete(deletion);
    }

    /** The finished segment that holds the offset in the epoch. */
    public Optional<RemoteLogSegmentMetadata> find(TopicIdPartition partition, int epoch, long offset) throws RemoteStorageException {
        return loaded(partition).find(epoch, offset);
    }

    /** The first finished segment at or after the offset, in an unbroken chain, that may have a transaction index. */
    public Optional<RemoteLogSegmentMetadata> findWithTxnIndex(TopicIdPartition partition, int epoch, long offset)
            throws RemoteStorageException {
        PartitionView view = loaded(partition);
        Optional<RemoteLogSegmentMetadata> found = view.find(epoch, offset);
        while (found.isPresent() && Segments.isTxnIndexEmpty(found.get())) {
            found = view.find(epoch, found.get().endOffset() + 1);
        }
        return found;
    }

    /** Highest offset ever finished in the epoch. */
    public Optional<Long> highestOffset(TopicIdPartition partition, int epoch) throws RemoteStorageException {
        PartitionView view = loaded(partition);
        Optional<Long> known = view.highest(epoch);
        long highest = known.isPresent() ? known.get() : view.rememberHighest(epoch, askHighest(partition, epoch));
        return highest < 0 ? Optional.empty() : Optional.of(highest);
    }

    /** Every segment that is not gone, by start offset. */
    public Iterator<RemoteLogSegmentMetadata> list(TopicIdPartition partition) throws RemoteStorageException {
        return loaded(partition).list().iterator();
    }

    /** Those of an epoch, by start offset. */
    public List<RemoteLogSegmentMetadata> list(TopicIdPartition partition, int epoch) throws RemoteStorageException {
        return loaded(partition).list(epoch);
    }

    @Override
    public void close() {
        scheduler.shutdownNow();
        writes.close();
        views.close();
        endpoints.close();
    }

    private long askHighest(TopicIdPartition partition, int epoch) throws RemoteStorageException {
        GetHighestOffsetForEpochRequest request = GetHighestOffsetForEpochRequest.newBuilder()
                .setTopicIdPartition(Segments.toProto(partition)).setLeaderEpoch(epoch).build();
        try (Operation operation = telemetry.begin("highestOffset", partition.toString())) {
            try {
                GetHighestOffsetForEpochResponse answer = caller.unary(
                        operation, null, RemoteLogMetadataServiceGrpc.getGetHighestOffsetForEpochMethod(), request);
                return answer.hasOffset() ? answer.getOffset() : -1;
            } catch (RpcException error) {
                throw operation.failed(StorageErrors.of("asking for the highest offset of " + partition, error));
            }
        }
    }

    private PartitionView loaded(TopicIdPartition partition) throws RemoteStorageException {
        PartitionView view = views.view(partition).orElseThrow(() ->
                new RemoteResourceNotFoundException(partition + " is not assigned to this broker"));
        try {
            if (!view.awaitReady(readyWaitNanos)) {
                // What Kafka's own manager throws, and what its clients retry; a RemoteStorageException is an unknown error to them.
                throw new ReplicaNotAvailableException("the metadata of " + partition + " is still loading");
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RemoteStorageException("interrupted while the metadata of " + partition + " was loading", error);
        }
        if (view.isDeleted()) {
            throw new RemoteResourceNotFoundException("the remote data of " + partition + " is deleted");
        }
        return view;
    }

    private static ThreadFactory named(String name) {
        AtomicInteger number = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, name + "-" + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }
}
