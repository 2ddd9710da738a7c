package io.aquifer.kafka.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.RequiresServices;
import io.aquifer.kafka.support.Services;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What Kafka expects of a storage manager (K-1.1), against a running service. */
@RequiresServices
class StorageManagerContractTest {
    @TempDir
    Path folder;

    private GrpcRemoteStorageManager manager;

    @BeforeEach
    void connect() {
        manager = Services.storageManager();
    }

    @AfterEach
    void close() {
        manager.close();
    }

    @Test
    void aCopiedSegmentIsReadBackWhole() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 3000);
        manager.copyLogSegmentData(segment.metadata(), segment.data());
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertArrayEquals(segment.log(), stream.readAllBytes());
        }
    }

    @Test
    void customMetadataFitsKafkasLimit() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        int size = manager.copyLogSegmentData(segment.metadata(), segment.data()).map(CustomMetadata::value).map(each -> each.length).orElse(0);
        assertTrue(size <= 128, "custom metadata of " + size + " bytes");
    }

    @Test
    void aRepeatedCopyOfTheSameIdAnswersAsTheFirst() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        var first = manager.copyLogSegmentData(segment.metadata(), segment.data());
        assertEquals(first, manager.copyLogSegmentData(segment.metadata(), segment.data()));
    }

    @Test
    void bothEndsOfARangeAreInclusive() throws Exception {
        BuiltSegment segment = copied(100);
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 1000, 1999)) {
            assertArrayEquals(Arrays.copyOfRange(segment.log(), 1000, 2000), stream.readAllBytes());
        }
    }

    @Test
    void aRangePastTheEndJustEnds() throws Exception {
        BuiltSegment segment = copied(100);
        int start = segment.log().length - 10;
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), start, Integer.MAX_VALUE)) {
            assertArrayEquals(Arrays.copyOfRange(segment.log(), start, segment.log().length), stream.readAllBytes());
        }
    }

    @Test
    void aStreamMayBeClosedEarly() throws Exception {
        BuiltSegment segment = copied(3000);
        for (int round = 0; round < 20; round++) {
            try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
                assertArrayEquals(Arrays.copyOf(segment.log(), 500), stream.readNBytes(500));
            }
        }
    }

    @Test
    void indexesAreReadBackWhole() throws Exception {
        BuiltSegment segment = copied(100);
        try (InputStream stream = manager.fetchIndex(segment.metadata(), IndexType.OFFSET)) {
            assertArrayEquals(segment.offsetIndex(), stream.readAllBytes());
        }
        for (IndexType type : new IndexType[] {IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH}) {
            try (InputStream stream = manager.fetchIndex(segment.metadata(), type)) {
                assertTrue(stream.readAllBytes().length > 0, "empty " + type);
            }
        }
    }

    @Test
    void aMissingTransactionIndexIsNotFound() throws Exception {
        BuiltSegment segment = copied(10);
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchIndex(segment.metadata(), IndexType.TRANSACTION));
    }

    @Test
    void aMissingSegmentIsNotFound() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchIndex(segment.metadata(), IndexType.OFFSET));
    }

    @Test
    void aDeletedSegmentIsGoneAndDeletedAgainInPeace() throws Exception {
        BuiltSegment segment = copied(10);
        manager.deleteLogSegmentData(segment.metadata());
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        manager.deleteLogSegmentData(segment.metadata());
    }

    @Test
    void aSegmentThatWasNeverCopiedIsDeletedInPeace() throws Exception {
        manager.deleteLogSegmentData(BuiltSegment.of(folder, 10).metadata());
    }

    @Test
    void aPositionPastTheEndIsAnErrorButNotMissing() throws Exception {
        BuiltSegment segment = copied(10);
        var error = assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), segment.log().length + 1));
        assertEquals(RemoteStorageException.class, error.getClass());
    }

    @Test
    void aDamagedSegmentIsRefused() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        byte[] damaged = segment.log().clone();
        damaged[200] ^= 1;
        Files.write(segment.data().logSegment(), damaged);
        assertThrows(RemoteStorageException.class, () -> manager.copyLogSegmentData(segment.metadata(), segment.data()));
    }

    @Test
    void afterCloseEveryCallFailsAsKafkaExpects() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        manager.close();
        assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertThrows(RemoteStorageException.class, () -> manager.copyLogSegmentData(segment.metadata(), segment.data()));
    }

    private BuiltSegment copied(int batches) throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, batches);
        manager.copyLogSegmentData(segment.metadata(), segment.data());
        return segment;
    }
}
