package io.aquifer.kafka.contract;

import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.DELETE_SEGMENT_FINISHED;
import static org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.DELETE_SEGMENT_STARTED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.Services;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.junit.jupiter.api.Test;

/** Views of several brokers, of restarted ones and of stopped partitions. */
class MetadataViewsTest extends MetadataScenario {
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

    @Test
    void hundredsOfPartitionsThatAreAssignedAtOnceBecomeReady() throws Exception {
        Set<TopicIdPartition> many = new HashSet<>();
        for (int number = 0; number < 200; number++) {
            many.add(BuiltSegment.partition());
        }
        manager.onPartitionLeadershipChanges(Set.of(), many);
        Eventually.eventually("all are ready", () -> many.stream().allMatch(manager::isReady));
        manager.onStopPartitions(many);
        assertTrue(many.stream().noneMatch(manager::isReady));
    }
}
