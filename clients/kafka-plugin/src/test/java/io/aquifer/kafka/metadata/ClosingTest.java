package io.aquifer.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedMetadata;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;

/** A broker that stops while metadata is written: Kafka's threads wait for the futures without end. */
class ClosingTest {
    private static final long NOW_MS = 1_700_000_000_000L;
    private static final long LONGEST_S = 60;

    @Test
    void everyWriteFailsThoseThatHaveNotBegunToo() throws Exception {
        TopicIdPartition partition = BuiltSegment.partition();
        List<CompletableFuture<Void>> writes = new ArrayList<>();
        try (ScriptedMetadata service = new ScriptedMetadata(); GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager()) {
            manager.configure(Map.of("aquifer.metadata.endpoints", service.address(), "aquifer.metadata.writes.at.once", "1"));
            manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            for (int number = 0; number < 3; number++) {
                writes.add(manager.addRemoteLogSegmentMetadata(new RemoteLogSegmentMetadata(
                        new RemoteLogSegmentId(partition, Uuid.randomUuid()), 0, 99, NOW_MS, 1, NOW_MS, 10, Map.of(0, 0L))));
            }
            Eventually.eventually("the first has arrived", () -> service.writes() == 1);
        }
        for (CompletableFuture<Void> write : writes) {
            var error = assertThrows(ExecutionException.class, () -> write.get(LONGEST_S, TimeUnit.SECONDS));
            assertInstanceOf(RemoteStorageException.class, error.getCause());
        }
    }
}
