package io.aquifer.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedMetadata;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ReplicaNotAvailableException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the metadata manager does when it cannot do what it should. */
class MetadataTroubleTest {
    private static final long NOW_MS = 1_700_000_000_000L;

    private final TopicIdPartition partition = BuiltSegment.partition();

    @Test
    void aPartitionThatIsStillLoadingIsAnErrorThatClientsRetryAsWithKafkasOwnManager() throws Exception {
        try (ScriptedMetadata service = new ScriptedMetadata(); GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager()) {
            service.failListingsOf(partition.topic());
            manager.configure(Map.of("aquifer.metadata.endpoints", service.address(), "aquifer.metadata.ready.wait.ms", "50"));
            manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            assertFalse(manager.isReady(partition));
            assertThrows(ReplicaNotAvailableException.class, () -> manager.remoteLogSegmentMetadata(partition, 0, 0));
            assertThrows(ReplicaNotAvailableException.class, () -> manager.highestOffsetForEpoch(partition, 0));
            assertThrows(ReplicaNotAvailableException.class, () -> manager.listRemoteLogSegments(partition));
        }
    }

    @Test
    void aChangeThatIsNotUnderstoodIsAskedForAgainMoreAndMoreSeldom() throws Exception {
        try (ScriptedMetadata service = new ScriptedMetadata(); GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager()) {
            service.putNonsense(1, new RemoteLogSegmentMetadata(
                    new RemoteLogSegmentId(partition, Uuid.randomUuid()), 0, 99, NOW_MS, 1, NOW_MS, 10, Map.of(0, 0L)));
            manager.configure(Map.of("aquifer.metadata.endpoints", service.address()));
            long began = System.nanoTime();
            manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            Eventually.eventually("it was asked for six times", () -> service.watchedFrom().size() >= 6);
            assertTrue(System.nanoTime() - began >= TimeUnit.MILLISECONDS.toNanos(50 + 100 + 200 + 400 + 800));
        }
    }

    @Test
    void aManagerThatRefusesItsPropertiesLeavesNothingBehind(@TempDir Path folder) throws Exception {
        String broker = UUID.randomUUID().toString();
        String wrong = Files.writeString(folder.resolve("ca.pem"), "not a certificate").toString();
        GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager();
        assertThrows(ConfigException.class, () -> manager.configure(Map.of(
                "broker.id", broker, "aquifer.metadata.endpoints", "metadata:7200", "aquifer.tls.ca.file", wrong)));
        assertTrue(ManagementFactory.getPlatformMBeanServer()
                .queryNames(new ObjectName("io.aquifer.kafka:broker=" + broker + ",*"), null).isEmpty());
    }
}
