package io.aquifer.kafka.contract;

import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.COPY_SEGMENT_FINISHED;
import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.COPY_SEGMENT_STARTED;
import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.DELETE_SEGMENT_FINISHED;
import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.DELETE_SEGMENT_STARTED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
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
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Kafka's own scenarios for metadata managers (K-7.3), against a running service. */
@RequiresServices
class MetadataManagerContractTest {
    private static final int SIZE_BYTES = 1024;
    private static final long NOW_MS = 1_700_000_000_000L;
    private static final long LONGEST_S = 60;

    private final TopicIdPartition partition = BuiltSegment.partition();
    private GrpcRemoteLogMetadataManager manager;

    @BeforeEach
    void assign() {
        manager = Services.metadataManager(Map.of());
        manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
    }

    @AfterEach
    void close() {
        manager.close();
    }

    @Test
    void aSegmentIsFoundOnlyAfterItsCopyFinished() throws Exception {
        RemoteLogSegmentMetadata segment = add(0, 100, Map.of(0, 0L));
        assertEquals(Optional.empty(), manager.remoteLogSegmentMetadata(partition, 0, 10));
        update(segment, COPY_SEGMENT_FINISHED);
        assertEquals(segment.remoteLogSegmentId(), found(0, 10).orElseThrow());
    }

    @Test
    void aPartitionIsForgottenOnlyAfterItsDeletionFinished() throws Exception {
        RemoteLogSegmentMetadata segment = finished(0, 100, Map.of(0, 0L, 1, 20L, 2, 50L, 3, 80L));
        assertEquals(segment.remoteLogSegmentId(), found(1, 30).orElseThrow());
        delete(RemotePartitionDeleteState.DELETE_PARTITION_MARKED);
        assertEquals(segment.remoteLogSegmentId(), found(1, 30).orElseThrow());
        delete(RemotePartitionDeleteState.DELETE_PARTITION_STARTED);
        assertEquals(segment.remoteLogSegmentId(), found(1, 30).orElseThrow());
        delete(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED);
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.remoteLogSegmentMetadata(partition, 1, 30));
    }

    @Test
    void segmentsGoThroughTheirLifeAsInKafkasCache() throws Exception {
        var s0 = finished(0, 100, Map.of(0, 0L, 1, 20L, 2, 80L));
        var s1 = finished(101, 200, Map.of(2, 101L));
        var s2 = finished(201, 300, Map.of(2, 201L, 3, 240L));
        var s3 = finished(250, 400, Map.of(3, 250L, 4, 370L));
        assertEquals(Optional.of(s0.remoteLogSegmentId()), found(1, 40));
        assertEquals(Optional.of(s1.remoteLogSegmentId()), found(2, 110));
        assertEquals(Optional.of(s2.remoteLogSegmentId()), found(3, 240));
        assertEquals(Optional.of(s3.remoteLogSegmentId()), found(3, 250));
        assertEquals(Optional.of(s3.remoteLogSegmentId()), found(4, 375));
        assertEquals(Optional.empty(), found(1, 110));
        assertEquals(Optional.empty(), found(4, 401));
        assertEquals(Optional.empty(), found(5, 301));
        assertHighestOffsets();
        for (var each : List.of(s0, s1, s2, s3)) {
            update(each, DELETE_SEGMENT_STARTED);
            assertTrue(ids(manager.listRemoteLogSegments(partition)).contains(each.remoteLogSegmentId()));
            update(each, DELETE_SEGMENT_FINISHED);
            assertFalse(ids(manager.listRemoteLogSegments(partition)).contains(each.remoteLogSegmentId()));
        }
        assertHighestOffsets();
        assertFalse(manager.listRemoteLogSegments(partition, 2).hasNext());
    }

    @Test
    void highestOffsetsOutliveSegmentsForABrokerThatComesLater() throws Exception {
        RemoteLogSegmentMetadata segment = finished(0, 100, Map.of(7, 0L));
        update(segment, DELETE_SEGMENT_STARTED);
        update(segment, DELETE_SEGMENT_FINISHED);
        try (GrpcRemoteLogMetadataManager later = Services.metadataManager(Map.of())) {
            later.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
            assertEquals(Optional.of(100L), later.highestOffsetForEpoch(partition, 7));
            assertFalse(later.listRemoteLogSegments(partition).hasNext());
        }
    }

    @Test
    void everyUnfinishedStateIsListedByStartOffset() throws Exception {
        var third = finished(200, 299, Map.of(0, 200L));
        var second = add(100, 199, Map.of(0, 100L));
        var first = finished(0, 99, Map.of(0, 0L));
        update(first, DELETE_SEGMENT_STARTED);
        List<RemoteLogSegmentId> expected =
                List.of(first.remoteLogSegmentId(), second.remoteLogSegmentId(), third.remoteLogSegmentId());
        assertEquals(expected, ids(manager.listRemoteLogSegments(partition, 0)));
        assertEquals(Set.copyOf(expected), Set.copyOf(ids(manager.listRemoteLogSegments(partition))));
        assertFalse(manager.listRemoteLogSegments(partition, 1).hasNext());
    }

    @Test
    void aLargerCopyDisplacesWhatItCovers() throws Exception {
        finished(10, 100, Map.of(0, 10L));
        var b = finished(5, 150, Map.of(0, 5L));
        assertEquals(Optional.of(b.remoteLogSegmentId()), found(0, 11));
        finished(148, 155, Map.of(0, 148L));
        var d = finished(4, 200, Map.of(0, 4L));
        assertEquals(Optional.of(d.remoteLogSegmentId()), found(0, 11));
        assertEquals(Optional.of(200L), manager.highestOffsetForEpoch(partition, 0));
    }

    @Test
    void ofTwoCopiesOfTheSameRangeTheLaterOneIsFound() throws Exception {
        finished(10, 100, Map.of(0, 10L));
        var later = finished(10, 100, Map.of(0, 10L));
        assertEquals(Optional.of(later.remoteLogSegmentId()), found(0, 11));
        var longer = finished(10, 150, Map.of(0, 10L));
        assertEquals(Optional.of(longer.remoteLogSegmentId()), found(0, 11));
        assertEquals(Optional.of(longer.remoteLogSegmentId()), found(0, 111));
    }

    @Test
    void sizesAreSumsOverTheSegmentsOfAnEpoch() throws Exception {
        finished(0, 99, Map.of(0, 0L));
        finished(100, 199, Map.of(0, 100L, 1, 150L));
        finished(200, 299, Map.of(1, 200L, 2, 250L));
        add(300, 399, Map.of(2, 300L));
        assertEquals(2L * SIZE_BYTES, manager.remoteLogSize(partition, 0));
        assertEquals(2L * SIZE_BYTES, manager.remoteLogSize(partition, 1));
        assertEquals(2L * SIZE_BYTES, manager.remoteLogSize(partition, 2));
        assertEquals(0, manager.remoteLogSize(partition, 9));
    }

    @Test
    void queriesAboutAPartitionThatIsNotAssignedFindNothing() {
        TopicIdPartition other = BuiltSegment.partition();
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.remoteLogSegmentMetadata(other, 0, 0));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.highestOffsetForEpoch(other, 0));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.listRemoteLogSegments(other));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.remoteLogSize(other, 0));
        assertFalse(manager.isReady(other));
    }

    @Test
    void writesForAPartitionThatIsNotAssignedFail() throws Exception {
        RemoteLogSegmentMetadata segment = built(BuiltSegment.partition(), 0, 10, Map.of(0, 0L));
        assertFails(manager.addRemoteLogSegmentMetadata(segment));
        assertFails(manager.updateRemoteLogSegmentMetadata(updateOf(segment, COPY_SEGMENT_FINISHED, Optional.empty())));
    }

    @Test
    void statesThatMakeNoSenseAreRefusedAtOnce() throws Exception {
        RemoteLogSegmentMetadata segment = add(0, 10, Map.of(0, 0L));
        RemoteLogSegmentMetadata wrong = segment.createWithUpdates(updateOf(segment, COPY_SEGMENT_FINISHED, Optional.empty()));
        assertThrows(IllegalArgumentException.class, () -> manager.addRemoteLogSegmentMetadata(wrong));
        assertThrows(IllegalArgumentException.class, () ->
                manager.updateRemoteLogSegmentMetadata(updateOf(segment, COPY_SEGMENT_STARTED, Optional.empty())));
    }

    @Test
    void aForbiddenTransitionFailsItsFutureAndChangesNothing() throws Exception {
        RemoteLogSegmentMetadata segment = finished(0, 10, Map.of(0, 0L));
        assertFails(manager.updateRemoteLogSegmentMetadata(updateOf(segment, DELETE_SEGMENT_FINISHED, Optional.empty())));
        assertEquals(Optional.of(segment.remoteLogSegmentId()), found(0, 5));
    }

    @Test
    void anUpdateOfAnUnknownSegmentFailsItsFuture() throws Exception {
        RemoteLogSegmentMetadata segment = built(partition, 0, 10, Map.of(0, 0L));
        assertFails(manager.updateRemoteLogSegmentMetadata(updateOf(segment, COPY_SEGMENT_FINISHED, Optional.empty())));
    }

    @Test
    void repeatedWritesSucceed() throws Exception {
        RemoteLogSegmentMetadata segment = add(0, 10, Map.of(0, 0L));
        await(manager.addRemoteLogSegmentMetadata(segment));
        update(segment, COPY_SEGMENT_FINISHED);
        update(segment, COPY_SEGMENT_FINISHED);
        update(segment, DELETE_SEGMENT_STARTED);
        update(segment, DELETE_SEGMENT_FINISHED);
        update(segment, DELETE_SEGMENT_FINISHED);
        assertFalse(manager.listRemoteLogSegments(partition).hasNext());
    }

    @Test
    void anUpdateReplacesCustomMetadataAlsoWithNone() throws Exception {
        RemoteLogSegmentMetadata segment = add(0, 10, Map.of(0, 0L));
        byte[] bytes = {1, 2, 3};
        await(manager.updateRemoteLogSegmentMetadata(
                updateOf(segment, COPY_SEGMENT_FINISHED, Optional.of(new CustomMetadata(bytes)))));
        var found = manager.remoteLogSegmentMetadata(partition, 0, 5).orElseThrow();
        assertArrayEquals(bytes, found.customMetadata().orElseThrow().value());
        update(segment, DELETE_SEGMENT_STARTED);
        assertEquals(Optional.empty(), manager.listRemoteLogSegments(partition).next().customMetadata());
    }

    @Test
    void theNextSegmentWithATransactionIndexIsFoundAlongTheChain() throws Exception {
        finished(0, 99, Map.of(0, 0L), true);
        finished(100, 199, Map.of(0, 100L), true);
        var third = finished(200, 299, Map.of(0, 200L), false);
        finished(400, 499, Map.of(0, 400L), true);
        assertEquals(third.remoteLogSegmentId(), manager.nextSegmentWithTxnIndex(partition, 0, 50).orElseThrow().remoteLogSegmentId());
        assertEquals(Optional.empty(), manager.nextSegmentWithTxnIndex(partition, 0, 300));
        assertEquals(Optional.empty(), manager.nextSegmentWithTxnIndex(partition, 0, 450));
    }

    @Test
    void whatOneBrokerWritesAnotherOneSees() throws Exception {
        try (GrpcRemoteLogMetadataManager follower = Services.metadataManager(Map.of())) {
            follower.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
            RemoteLogSegmentMetadata segment = finished(0, 100, Map.of(0, 0L));
            Eventually.eventually("the follower finds the segment", () ->
                    follower.remoteLogSegmentMetadata(partition, 0, 50).isPresent());
            update(segment, DELETE_SEGMENT_STARTED);
            update(segment, DELETE_SEGMENT_FINISHED);
            Eventually.eventually("the follower has forgotten the segment", () ->
                    !follower.listRemoteLogSegments(partition).hasNext());
            assertEquals(Optional.of(100L), follower.highestOffsetForEpoch(partition, 0));
        }
    }

    @Test
    void aRestartedBrokerSeesWhatWasWritten() throws Exception {
        var finished = finished(0, 99, Map.of(0, 0L));
        var started = add(100, 199, Map.of(0, 100L));
        manager.close();
        assign();
        assertEquals(List.of(finished.remoteLogSegmentId(), started.remoteLogSegmentId()), ids(manager.listRemoteLogSegments(partition, 0)));
        assertEquals(Optional.of(99L), manager.highestOffsetForEpoch(partition, 0));
        assertEquals(Optional.of(finished.remoteLogSegmentId()), found(0, 99));
    }

    @Test
    void anEmptyPartitionBecomesReadyAndStaysSoUntilItIsStopped() throws Exception {
        Eventually.eventually("the partition is ready", () -> manager.isReady(partition));
        manager.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
        assertTrue(manager.isReady(partition));
        manager.onStopPartitions(Set.of(partition));
        assertFalse(manager.isReady(partition));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.listRemoteLogSegments(partition));
    }

    @Test
    void aStoppedPartitionMayComeBack() throws Exception {
        var segment = finished(0, 99, Map.of(0, 0L));
        manager.onStopPartitions(Set.of(partition));
        manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
        assertEquals(Optional.of(segment.remoteLogSegmentId()), found(0, 50));
    }

    @Test
    void watchesThatAreRenewedAllTheTimeLoseNothing() throws Exception {
        try (GrpcRemoteLogMetadataManager restless = Services.metadataManager(Map.of("aquifer.metadata.watch.deadline.ms", "50"))) {
            restless.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
            List<RemoteLogSegmentId> expected = new ArrayList<>();
            for (int start = 0; start < 2000; start += 100) {
                expected.add(finished(start, start + 99, Map.of(0, (long) start)).remoteLogSegmentId());
            }
            Eventually.eventually("everything has arrived", () ->
                    expected.equals(ids(restless.listRemoteLogSegments(partition, 0))) && restless.remoteLogSegmentMetadata(partition, 0, 1999).isPresent());
        }
    }

    @Test
    void manySegmentsAreLoadedWhole() throws Exception {
        List<CompletableFuture<Void>> writes = new ArrayList<>();
        for (int start = 0; start < 1200; start++) {
            writes.add(manager.addRemoteLogSegmentMetadata(built(partition, start, start, Map.of(0, (long) start))));
        }
        for (CompletableFuture<Void> each : writes) {
            await(each);
        }
        try (GrpcRemoteLogMetadataManager later = Services.metadataManager(Map.of())) {
            later.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
            assertEquals(1200, ids(later.listRemoteLogSegments(partition)).size());
        }
    }

    private void assertHighestOffsets() throws RemoteStorageException {
        long[] expected = {19, 79, 239, 369, 400};
        for (int epoch = 0; epoch < expected.length; epoch++) {
            assertEquals(Optional.of(expected[epoch]), manager.highestOffsetForEpoch(partition, epoch), "epoch " + epoch);
        }
        assertEquals(Optional.empty(), manager.highestOffsetForEpoch(partition, 5));
    }

    private RemoteLogSegmentMetadata add(long start, long end, Map<Integer, Long> epochs) throws Exception {
        RemoteLogSegmentMetadata segment = built(partition, start, end, epochs);
        await(manager.addRemoteLogSegmentMetadata(segment));
        return segment;
    }

    private RemoteLogSegmentMetadata finished(long start, long end, Map<Integer, Long> epochs) throws Exception {
        return finished(start, end, epochs, false);
    }

    private RemoteLogSegmentMetadata finished(long start, long end, Map<Integer, Long> epochs, boolean txnIndexEmpty) throws Exception {
        RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.randomUuid()), start, end, NOW_MS, 1, NOW_MS, SIZE_BYTES, epochs, txnIndexEmpty);
        await(manager.addRemoteLogSegmentMetadata(segment));
        update(segment, COPY_SEGMENT_FINISHED);
        return segment;
    }

    private void update(RemoteLogSegmentMetadata segment, RemoteLogSegmentState state) throws Exception {
        await(manager.updateRemoteLogSegmentMetadata(updateOf(segment, state, Optional.empty())));
    }

    private void delete(RemotePartitionDeleteState state) throws Exception {
        await(manager.putRemotePartitionDeleteMetadata(new RemotePartitionDeleteMetadata(partition, state, NOW_MS, 1)));
    }

    private Optional<RemoteLogSegmentId> found(int epoch, long offset) throws RemoteStorageException {
        return manager.remoteLogSegmentMetadata(partition, epoch, offset).map(RemoteLogSegmentMetadata::remoteLogSegmentId);
    }

    private static RemoteLogSegmentMetadata built(TopicIdPartition partition, long start, long end, Map<Integer, Long> epochs) {
        return new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.randomUuid()), start, end, NOW_MS, 1, NOW_MS, SIZE_BYTES, epochs);
    }

    private static RemoteLogSegmentMetadataUpdate updateOf(
            RemoteLogSegmentMetadata segment, RemoteLogSegmentState state, Optional<CustomMetadata> custom) {
        return new RemoteLogSegmentMetadataUpdate(segment.remoteLogSegmentId(), NOW_MS, custom, state, 1);
    }

    private static void await(CompletableFuture<Void> write) throws Exception {
        write.get(LONGEST_S, TimeUnit.SECONDS);
    }

    private static void assertFails(CompletableFuture<Void> write) {
        ExecutionException error = assertThrows(ExecutionException.class, () -> write.get(LONGEST_S, TimeUnit.SECONDS));
        assertTrue(error.getCause() instanceof RemoteStorageException, String.valueOf(error.getCause()));
    }

    private static List<RemoteLogSegmentId> ids(Iterator<RemoteLogSegmentMetadata> segments) {
        List<RemoteLogSegmentId> all = new ArrayList<>();
        segments.forEachRemaining(each -> all.add(each.remoteLogSegmentId()));
        return all;
    }
}
