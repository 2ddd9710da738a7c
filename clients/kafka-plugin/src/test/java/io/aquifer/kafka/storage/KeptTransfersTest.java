package io.aquifer.kafka.storage;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedStorage;
import io.grpc.Status.Code;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Short reads one after the other, as the broker makes them: one stream serves them as long as each goes on where the last one ended. */
class KeptTransfersTest {
    private static final int PIECE = 64 * 1024;
    private static final int LOG_BYTES = 100 * PIECE;
    private static final String LONG_MS = "600000";
    private static final long LONGEST_S = 60;

    @TempDir
    Path folder;

    private final byte[] log = new byte[LOG_BYTES];
    private final String broker = String.valueOf(System.nanoTime());
    private final GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager();
    private ScriptedStorage service;
    private BuiltSegment segment;

    @BeforeEach
    void start() throws IOException {
        new Random(1).nextBytes(log);
        service = new ScriptedStorage(log);
        segment = BuiltSegment.of(folder, 10);
        configure(Map.of("aquifer.fetch.keep.ms", LONG_MS));
    }

    @AfterEach
    void stop() {
        manager.close();
        service.close();
    }

    @Test
    void readsThatGoOnUseOneStream() throws Exception {
        int step = 3 * PIECE + 1000;
        for (int position = 0; position < LOG_BYTES; position += step) {
            assertRead(position, step);
        }
        assertEquals(List.of(0L), service.fetchedFrom);
        assertEquals(LOG_BYTES / step, counted("FetchesContinued"));
        assertEquals(LOG_BYTES, counted("fetchBytes"));
    }

    @Test
    void aReadThatEndedInTheMiddleOfABatchIsFollowedByOneThatBeginsAtTheBatch() throws Exception {
        assertRead(0, 20 * PIECE);
        assertRead(20 * PIECE - Transfer.KEPT_BYTES, 30 * PIECE);
        assertRead(33 * PIECE - 17, LOG_BYTES);
        assertEquals(List.of(0L), service.fetchedFrom);
    }

    @Test
    void aReadElsewhereOpensAStreamOfItsOwn() throws Exception {
        assertRead(0, 40 * PIECE);
        assertRead(10 * PIECE, PIECE);
        assertRead(90 * PIECE, PIECE);
        assertRead(40 * PIECE, PIECE);
        assertEquals(List.of(0L, 10L * PIECE, 90L * PIECE), service.fetchedFrom);
    }

    @Test
    void twoReadersAtOnePlaceHaveAStreamEach() throws Exception {
        try (InputStream one = manager.fetchLogSegment(segment.metadata(), 0); InputStream two = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertArrayEquals(Arrays.copyOf(log, PIECE), one.readNBytes(PIECE));
            assertArrayEquals(Arrays.copyOf(log, PIECE), two.readNBytes(PIECE));
        }
        try (InputStream one = manager.fetchLogSegment(segment.metadata(), PIECE);
                InputStream two = manager.fetchLogSegment(segment.metadata(), PIECE)) {
            assertArrayEquals(Arrays.copyOfRange(log, PIECE, LOG_BYTES), one.readAllBytes());
            assertArrayEquals(Arrays.copyOfRange(log, PIECE, LOG_BYTES), two.readAllBytes());
        }
        assertEquals(List.of(0L, 0L), service.fetchedFrom);
    }

    @Test
    void aStreamThatNobodyGoesOnWithIsEnded() throws Exception {
        configure(Map.of("aquifer.fetch.keep.ms", "50"));
        assertRead(0, 1000);
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        assertTrue(service.piecesSent < 100, service.piecesSent + " pieces were sent");
        Eventually.eventually("nothing is kept", () -> counted("FetchesKept") == 0);
        assertRead(1000, 1000);
        assertEquals(List.of(0L, 1000L), service.fetchedFrom);
    }

    @Test
    void withoutMemoryForThemStreamsEndWhenTheyAreClosed() throws Exception {
        configure(Map.of("aquifer.fetch.keep.ms", LONG_MS, "aquifer.fetch.keep.bytes", "0"));
        assertRead(0, 1000);
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        assertRead(1000, 1000);
        assertEquals(List.of(0L, 1000L), service.fetchedFrom);
    }

    @Test
    void theStreamThatWaitedLongestMakesRoom() throws Exception {
        configure(Map.of("aquifer.fetch.keep.ms", LONG_MS, "aquifer.fetch.keep.bytes", String.valueOf(5 * 1024 * 1024)));
        for (int segments = 0; segments < 5; segments++) {
            try (InputStream stream = manager.fetchLogSegment(BuiltSegment.of(folder, 10).metadata(), 0)) {
                assertEquals(1000, stream.readNBytes(1000).length);
            }
        }
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        assertEquals(2, counted("FetchesKept"));
    }

    @Test
    void theDeletionOfASegmentEndsItsStreams() throws Exception {
        assertRead(0, 1000);
        manager.deleteLogSegmentData(segment.metadata());
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        assertEquals(0, counted("FetchesKept"));
    }

    @Test
    void closingTheManagerEndsAll() throws Exception {
        assertRead(0, 1000);
        InputStream open = manager.fetchLogSegment(segment.metadata(), 50 * PIECE);
        manager.close();
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        open.close();
    }

    @Test
    void aStreamThatBrokeWhileItWaitedIsOpenedAgainWhateverBrokeIt() throws Exception {
        service.breaking = ScriptedStorage.error(Code.DATA_LOSS, "CHECKSUM_MISMATCH", null);
        service.breakAfterPieces = 20;
        assertRead(0, PIECE);
        assertRead(PIECE, LOG_BYTES);
        assertEquals(List.of(0L, 20L * PIECE), service.fetchedFrom);
    }

    @Test
    void aStreamThatFailedIsNotKept() throws Exception {
        service.breaking = ScriptedStorage.error(Code.DATA_LOSS, "CHECKSUM_MISMATCH", null);
        service.breakAfterPieces = 20;
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertThrows(IOException.class, stream::readAllBytes);
            assertThrows(IOException.class, stream::read);
        }
        assertEquals(0, counted("FetchesKept"));
        assertRead(0, LOG_BYTES);
    }

    private void assertRead(int position, int length) throws Exception {
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), position)) {
            byte[] expected = Arrays.copyOfRange(log, position, Math.min(LOG_BYTES, position + length));
            assertArrayEquals(expected, stream.readNBytes(expected.length));
        }
    }

    private long counted(String name) throws Exception {
        ObjectName bean = new ObjectName("io.aquifer.kafka:type=GrpcRemoteStorageManager,broker=" + broker);
        return (Long) ManagementFactory.getPlatformMBeanServer().getAttribute(bean, name);
    }

    private void configure(Map<String, String> configs) {
        Map<String, String> all = new HashMap<>(configs);
        all.put("broker.id", broker);
        all.put("aquifer.storage.endpoints", service.address());
        manager.close();
        manager.configure(all);
    }
}
