package io.aquifer.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedMetadata;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A broker that was cut off for so long that the service no longer keeps what it has missed. */
class LostHistoryTest {
    private static final long NOW_MS = 1_700_000_000_000L;

    private final TopicIdPartition partition = BuiltSegment.partition();
    private final RemoteLogSegmentId first = new RemoteLogSegmentId(partition, Uuid.randomUuid());
    private final RemoteLogSegmentId second = new RemoteLogSegmentId(partition, Uuid.randomUuid());
    private final RemoteLogSegmentId third = new RemoteLogSegmentId(partition, Uuid.randomUuid());
    private final GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager();
    private ScriptedMetadata service;

    @BeforeEach
    void start() throws Exception {
        service = new ScriptedMetadata();
        manager.configure(Map.of(
                "broker.id", "1",
                "aquifer.metadata.endpoints", service.address(),
                "aquifer.metadata.ready.wait.ms", "60000",
                "aquifer.metadata.watch.backoff.max.ms", "50"));
        service.put(1, finished(first, 0));
        service.put(2, finished(second, 100));
        manager.onPartitionLeadershipChanges(Set.of(), Set.of(partition));
        assertEquals(List.of(first, second), listed());
    }

    @AfterEach
    void stop() {
        manager.close();
        service.close();
    }

    @Test
    void aWatchWhoseVersionHasLeftTheHistoryBeginsAgain() throws Exception {
        cutOffWhileTheFirstSegmentGoes();
        service.release();
        Eventually.eventually("the new segment has arrived", () -> found(250).equals(Optional.of(third)));
        assertEquals(List.of(second, third), listed());
        assertEquals(Optional.empty(), found(50));
        assertEquals(List.of(0L, 2L, 0L), service.watchedFrom());
        service.breakWatch();
        Eventually.eventually("the watch goes on from what it has now", () -> service.watchedFrom().equals(List.of(0L, 2L, 0L, 10L)));
    }

    @Test
    void queriesAreAnsweredFromWhatWasKnownUntilAllIsHereAgain() throws Exception {
        int before = service.listings();
        cutOffWhileTheFirstSegmentGoes();
        Eventually.eventually("a listing says what is to come", () -> service.listings() > before);
        for (int round = 0; round < 20; round++) {
            assertTrue(manager.isReady(partition));
            assertEquals(List.of(first, second), listed());
            assertEquals(Optional.of(first), found(50));
        }
        service.release();
        Eventually.eventually("the new segment has arrived", () -> listed().equals(List.of(second, third)));
    }

    @Test
    void aWatchThatBreaksWhileAllIsLoadedAnewGoesOnWhereItBroke() throws Exception {
        cutOffWhileTheFirstSegmentGoes();
        Eventually.eventually("the watch began again", () -> service.watchedFrom().equals(List.of(0L, 2L, 0L)));
        service.forget(1, 0);
        service.breakWatch();
        Eventually.eventually("the watch goes on", () -> service.watchedFrom().size() == 4);
        service.release();
        Eventually.eventually("the new segment has arrived", () -> listed().equals(List.of(second, third)));
    }

    /** Version 2 is the last that the broker knows; the history goes back to version 9. The third segment is held back. */
    private void cutOffWhileTheFirstSegmentGoes() {
        service.holdBackFrom(3);
        service.forget(1, 9);
        service.put(10, finished(third, 200));
        service.breakWatch();
    }

    private Optional<RemoteLogSegmentId> found(long offset) throws RemoteStorageException {
        return manager.remoteLogSegmentMetadata(partition, 0, offset).map(RemoteLogSegmentMetadata::remoteLogSegmentId);
    }

    private List<RemoteLogSegmentId> listed() throws RemoteStorageException {
        List<RemoteLogSegmentId> ids = new ArrayList<>();
        manager.listRemoteLogSegments(partition).forEachRemaining(each -> ids.add(each.remoteLogSegmentId()));
        return ids;
    }

    private static RemoteLogSegmentMetadata finished(RemoteLogSegmentId id, long start) {
        return new RemoteLogSegmentMetadata(id, start, start + 99, NOW_MS, 1, NOW_MS, 10, Map.of(0, start))
                .createWithUpdates(new RemoteLogSegmentMetadataUpdate(
                        id, NOW_MS, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1));
    }
}
