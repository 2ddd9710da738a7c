package io.aquifer.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedMetadata;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicIdPartition;
import org.junit.jupiter.api.Test;

class LoadQueueTest {
    @Test
    void thousandsThatHaveNothingToDoAnyMoreMakeRoomForTheNext() {
        LoadQueue queue = new LoadQueue(2);
        queue.submit(() -> { });
        List<Integer> run = new ArrayList<>();
        queue.submit(() -> { });
        for (int number = 0; number < 100_000; number++) {
            int each = number;
            queue.submit(() -> {
                run.add(each);
                queue.finished();
            });
        }
        assertEquals(List.of(), run);
        queue.finished();
        assertEquals(100_000, run.size());
        assertEquals(99_999, run.get(99_999));
        queue.submit(() -> run.add(-1));
        assertEquals(-1, run.get(100_000));
    }

    @Test
    void aPartitionThatCannotBeLoadedDoesNotKeepTheOthersFromIt() throws Exception {
        TopicIdPartition failing = BuiltSegment.partition();
        TopicIdPartition other = BuiltSegment.partition();
        try (ScriptedMetadata service = new ScriptedMetadata();
                GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager()) {
            service.failListingsOf(failing.topic());
            manager.configure(Map.of(
                    "aquifer.metadata.endpoints", service.address(),
                    "aquifer.metadata.loads.at.once", "1",
                    "aquifer.metadata.watch.backoff.max.ms", "50"));
            manager.onPartitionLeadershipChanges(Set.of(failing), Set.of());
            Eventually.eventually("the first load has failed", () -> service.listings() > 1);
            manager.onPartitionLeadershipChanges(Set.of(other), Set.of());
            Eventually.eventually("the other one is loaded", () -> manager.isReady(other));
        }
    }
}
