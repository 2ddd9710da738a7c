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

import io.aquifer.kafka.support.BuiltSegment;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;

/** Kafka's own scenarios for metadata managers (K-7.3), against a running service. */
class MetadataManagerContractTest extends MetadataScenario {
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

    private void assertHighestOffsets() throws RemoteStorageException {
        long[] expected = {19, 79, 239, 369, 400};
        for (int epoch = 0; epoch < expected.length; epoch++) {
            assertEquals(Optional.of(expected[epoch]), manager.highestOffsetForEpoch(partition, epoch), "epoch " + epoch);
        }
        assertEquals(Optional.empty(), manager.highestOffsetForEpoch(partition, 5));
    }
}
