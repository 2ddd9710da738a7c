package io.aquifer.kafka.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.CuttingProxy;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.RequiresServices;
import io.aquifer.kafka.support.Services;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A broker whose way to the metadata service is cut, beside one whose way is not. */
@RequiresServices
class MetadataOutageTest {
    private static final long NOW_MS = 1_700_000_000_000L;
    private static final long LONGEST_S = 60;

    private final TopicIdPartition partition = BuiltSegment.partition();
    private CuttingProxy proxy;
    private GrpcRemoteLogMetadataManager cut;
    private GrpcRemoteLogMetadataManager other;

    @BeforeEach
    void start() throws Exception {
        proxy = new CuttingProxy(System.getenv(Services.METADATA));
        cut = Services.metadataManager(Map.of(
                "aquifer.metadata.endpoints", proxy.address(),
                "aquifer.metadata.watch.backoff.max.ms", "200",
                "aquifer.retry.backoff.max.ms", "50"));
        other = Services.metadataManager(Map.of());
        other.onPartitionLeadershipChanges(Set.of(partition), Set.of());
    }

    @AfterEach
    void stop() throws Exception {
        cut.close();
        other.close();
        proxy.close();
    }

    @Test
    void queriesGoOnWithWhatIsKnownAndCatchUpAfterwards() throws Exception {
        cut.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
        RemoteLogSegmentMetadata first = finished(other, 0, 99);
        Eventually.eventually("the first segment has arrived", () -> cut.remoteLogSegmentMetadata(partition, 0, 50).isPresent());
        proxy.cut();
        RemoteLogSegmentMetadata second = finished(other, 100, 199);
        update(other, first, RemoteLogSegmentState.DELETE_SEGMENT_STARTED);
        update(other, first, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED);
        assertTrue(cut.isReady(partition));
        assertEquals(Optional.of(first.remoteLogSegmentId()), cut.remoteLogSegmentMetadata(partition, 0, 50)
                .map(RemoteLogSegmentMetadata::remoteLogSegmentId));
        assertEquals(Optional.empty(), cut.remoteLogSegmentMetadata(partition, 0, 150));
        proxy.mend();
        Eventually.eventually("the second segment has arrived", () -> cut.remoteLogSegmentMetadata(partition, 0, 150).isPresent());
        assertEquals(Optional.empty(), cut.remoteLogSegmentMetadata(partition, 0, 50));
        assertEquals(second.remoteLogSegmentId(), cut.listRemoteLogSegments(partition).next().remoteLogSegmentId());
    }

    @Test
    void writesFailAsKafkaExpectsAndSucceedAfterwards() throws Exception {
        cut.onPartitionLeadershipChanges(Set.of(partition), Set.of());
        Eventually.eventually("the partition is ready", () -> cut.isReady(partition));
        proxy.cut();
        RemoteLogSegmentMetadata segment = built(0, 99);
        ExecutionException error = assertThrows(ExecutionException.class, () ->
                cut.addRemoteLogSegmentMetadata(segment).get(LONGEST_S, TimeUnit.SECONDS));
        assertTrue(error.getCause() instanceof RemoteStorageException, String.valueOf(error.getCause()));
        proxy.mend();
        Eventually.eventually("the write succeeds", () -> {
            try {
                cut.addRemoteLogSegmentMetadata(segment).get(LONGEST_S, TimeUnit.SECONDS);
                return true;
            } catch (ExecutionException notYet) {
                return false;
            }
        });
        assertEquals(segment.remoteLogSegmentId(), cut.listRemoteLogSegments(partition).next().remoteLogSegmentId());
    }

    @Test
    void aPartitionThatIsAssignedDuringTheOutageIsReadyAfterwards() throws Exception {
        RemoteLogSegmentMetadata segment = finished(other, 0, 99);
        proxy.cut();
        cut.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
        assertFalse(cut.isReady(partition));
        proxy.mend();
        Eventually.eventually("the partition is ready", () -> cut.isReady(partition));
        assertEquals(segment.remoteLogSegmentId(), cut.listRemoteLogSegments(partition).next().remoteLogSegmentId());
        assertEquals(Optional.of(99L), cut.highestOffsetForEpoch(partition, 0));
    }

    @Test
    void aPartitionThatIsStillLoadingFailsItsQueriesInTime() throws Exception {
        proxy.cut();
        try (GrpcRemoteLogMetadataManager hasty = Services.metadataManager(Map.of(
                "aquifer.metadata.endpoints", proxy.address(), "aquifer.metadata.ready.wait.ms", "50"))) {
            hasty.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            assertThrows(ReplicaNotAvailableException.class, () -> hasty.listRemoteLogSegments(partition));
        }
    }

    private RemoteLogSegmentMetadata finished(GrpcRemoteLogMetadataManager manager, long start, long end) throws Exception {
        RemoteLogSegmentMetadata segment = built(start, end);
        manager.addRemoteLogSegmentMetadata(segment).get(LONGEST_S, TimeUnit.SECONDS);
        update(manager, segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED);
        return segment;
    }

    private RemoteLogSegmentMetadata built(long start, long end) {
        return new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.randomUuid()), start, end, NOW_MS, 1, NOW_MS, 10, Map.of(0, start));
    }

    private static void update(GrpcRemoteLogMetadataManager manager, RemoteLogSegmentMetadata segment, RemoteLogSegmentState state)
            throws Exception {
        manager.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                segment.remoteLogSegmentId(), NOW_MS, Optional.empty(), state, 1)).get(LONGEST_S, TimeUnit.SECONDS);
    }
}
