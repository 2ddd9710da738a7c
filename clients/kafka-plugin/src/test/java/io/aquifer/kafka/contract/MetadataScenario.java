package io.aquifer.kafka.contract;

import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.COPY_SEGMENT_FINISHED;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.RequiresServices;
import io.aquifer.kafka.support.Services;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** A manager with one partition assigned, on a running service, and what scenarios do with it. */
@RequiresServices
abstract class MetadataScenario {
    static final int SIZE_BYTES = 1024;
    private static final long NOW_MS = 1_700_000_000_000L;
    private static final long LONGEST_S = 60;

    final TopicIdPartition partition = BuiltSegment.partition();
    GrpcRemoteLogMetadataManager manager;

    @BeforeEach
    void assign() {
        manager = Services.metadataManager(Map.of());
        manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
    }

    @AfterEach
    void close() {
        manager.close();
    }

    final RemoteLogSegmentMetadata add(long start, long end, Map<Integer, Long> epochs) throws Exception {
        RemoteLogSegmentMetadata segment = built(partition, start, end, epochs);
        await(manager.addRemoteLogSegmentMetadata(segment));
        return segment;
    }

    final RemoteLogSegmentMetadata finished(long start, long end, Map<Integer, Long> epochs) throws Exception {
        return finished(start, end, epochs, false);
    }

    final RemoteLogSegmentMetadata finished(long start, long end, Map<Integer, Long> epochs, boolean txnIndexEmpty) throws Exception {
        RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.randomUuid()), start, end, NOW_MS, 1, NOW_MS, SIZE_BYTES, epochs, txnIndexEmpty);
        await(manager.addRemoteLogSegmentMetadata(segment));
        update(segment, COPY_SEGMENT_FINISHED);
        return segment;
    }

    final void update(RemoteLogSegmentMetadata segment, RemoteLogSegmentState state) throws Exception {
        await(manager.updateRemoteLogSegmentMetadata(updateOf(segment, state, Optional.empty())));
    }

    final void delete(RemotePartitionDeleteState state) throws Exception {
        await(manager.putRemotePartitionDeleteMetadata(new RemotePartitionDeleteMetadata(partition, state, NOW_MS, 1)));
    }

    final Optional<RemoteLogSegmentId> found(int epoch, long offset) throws RemoteStorageException {
        return manager.remoteLogSegmentMetadata(partition, epoch, offset).map(RemoteLogSegmentMetadata::remoteLogSegmentId);
    }

    static RemoteLogSegmentMetadata built(TopicIdPartition partition, long start, long end, Map<Integer, Long> epochs) {
        return new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.randomUuid()), start, end, NOW_MS, 1, NOW_MS, SIZE_BYTES, epochs);
    }

    static RemoteLogSegmentMetadataUpdate updateOf(
            RemoteLogSegmentMetadata segment, RemoteLogSegmentState state, Optional<CustomMetadata> custom) {
        return new RemoteLogSegmentMetadataUpdate(segment.remoteLogSegmentId(), NOW_MS, custom, state, 1);
    }

    static void await(CompletableFuture<Void> write) throws Exception {
        write.get(LONGEST_S, TimeUnit.SECONDS);
    }

    static void assertFails(CompletableFuture<Void> write) {
        ExecutionException error = assertThrows(ExecutionException.class, () -> write.get(LONGEST_S, TimeUnit.SECONDS));
        assertTrue(error.getCause() instanceof RemoteStorageException, String.valueOf(error.getCause()));
    }

    static List<RemoteLogSegmentId> ids(Iterator<RemoteLogSegmentMetadata> segments) {
        List<RemoteLogSegmentId> all = new ArrayList<>();
        segments.forEachRemaining(each -> all.add(each.remoteLogSegmentId()));
        return all;
    }
}
