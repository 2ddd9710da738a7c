package io.aquifer.kafka.storage;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.ScriptedStorage;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.Status.Code;
import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the storage manager does when a service does not do what it should. */
class StorageCallsTest {
    private static final int LOG_BYTES = 40 * 64 * 1024;
    private static final long LONGEST_S = 60;

    @TempDir
    Path folder;

    private final byte[] log = new byte[LOG_BYTES];
    private final GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager();
    private ScriptedStorage service;
    private BuiltSegment segment;

    @BeforeEach
    void start() throws IOException {
        new Random(1).nextBytes(log);
        service = new ScriptedStorage(log);
        segment = BuiltSegment.of(folder, 10);
        configure(Map.of("aquifer.storage.endpoints", service.address()));
    }

    @AfterEach
    void stop() {
        manager.close();
        service.close();
    }

    @Test
    void aBusyServiceIsAskedAgainWhenItSays() throws Exception {
        service.failures.add(ScriptedStorage.error(Code.RESOURCE_EXHAUSTED, "FETCH_QUOTA", 200L));
        long before = System.nanoTime();
        manager.deleteLogSegmentData(segment.metadata());
        assertTrue(System.nanoTime() - before >= TimeUnit.MILLISECONDS.toNanos(200));
        assertEquals(2, service.calls.size());
    }

    @Test
    void aSpentQuotaWithoutATimeIsNotAskedAgain() {
        service.failures.add(ScriptedStorage.error(Code.RESOURCE_EXHAUSTED, "FETCH_QUOTA", null));
        assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(segment.metadata()));
        assertEquals(1, service.calls.size());
    }

    @Test
    void anUnavailableStoreIsAskedAgainAsOftenAsConfigured() {
        for (int attempt = 0; attempt < 5; attempt++) {
            service.failures.add(ScriptedStorage.error(Code.UNAVAILABLE, "OBJECT_STORE_UNAVAILABLE", null));
        }
        var error = assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(segment.metadata()));
        assertEquals(5, service.calls.size());
        assertTrue(error.getMessage().contains("UNAVAILABLE (OBJECT_STORE_UNAVAILABLE)"), error.getMessage());
    }

    @Test
    void whatARetryCannotHelpIsNotRepeated() {
        service.failures.add(ScriptedStorage.error(Code.DATA_LOSS, "CHECKSUM_MISMATCH", null));
        assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertEquals(1, service.fetchedFrom.size());
    }

    @Test
    void notFoundIsKafkasNotFound() {
        service.failures.add(ScriptedStorage.error(Code.NOT_FOUND, "SEGMENT_NOT_FOUND", null));
        assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
    }

    @Test
    void aDeletionOfWhatIsGoneSucceeds() throws Exception {
        service.failures.add(ScriptedStorage.error(Code.NOT_FOUND, "SEGMENT_NOT_FOUND", null));
        manager.deleteLogSegmentData(segment.metadata());
        assertEquals(1, service.calls.size());
    }

    @Test
    void whatSomebodyElseCallsNotFoundIsNotTakenForAnAnswerOfTheService() {
        for (int call = 0; call < 2; call++) {
            service.failures.add(Status.NOT_FOUND.withDescription("no such route").asRuntimeException());
        }
        var read = assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertEquals(RemoteStorageException.class, read.getClass());
        assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(segment.metadata()));
    }

    @Test
    void aCopyThatTheServiceHasBegunIsNotRepeated() {
        service.failures.add(ScriptedStorage.error(Code.UNAVAILABLE, "OBJECT_STORE_UNAVAILABLE", null));
        assertThrows(RemoteStorageException.class, () -> manager.copyLogSegmentData(segment.metadata(), segment.data()));
        assertEquals(List.of("copy"), service.calls);
    }

    @Test
    void aCopyThatTheServiceRefusedIsRepeated() throws Exception {
        service.failures.add(ScriptedStorage.error(Code.RESOURCE_EXHAUSTED, "COPY_QUOTA", 1L));
        service.failures.add(ScriptedStorage.error(Code.UNAVAILABLE, "NOT_READY", 1L));
        manager.copyLogSegmentData(segment.metadata(), segment.data());
        assertEquals(List.of("copy", "copy", "copy"), service.calls);
    }

    @Test
    void aFileThatIsGoneFailsTheCopyAsKafkaExpects() throws Exception {
        Files.delete(segment.data().logSegment());
        assertThrows(RemoteStorageException.class, () -> manager.copyLogSegmentData(segment.metadata(), segment.data()));
    }

    @Test
    void aBrokenStreamGoesOnWhereItBroke() throws Exception {
        service.breakAfterPieces = 7;
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertArrayEquals(log, stream.readAllBytes());
        }
        assertEquals(List.of(0L, 7L * 64 * 1024), service.fetchedFrom);
    }

    @Test
    void closingEarlyEndsTheTransferAndLittleWasSent() throws Exception {
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertEquals(100, stream.readNBytes(100).length);
        }
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
        assertTrue(service.piecesSent < 40, service.piecesSent + " pieces were sent");
    }

    @Test
    void aClosedStreamCannotBeRead() throws Exception {
        InputStream stream = manager.fetchLogSegment(segment.metadata(), 0);
        stream.close();
        stream.close();
        assertThrows(IOException.class, stream::read);
    }

    @Test
    void damageOnTheWayIsNotHandedOn() {
        service.damaging = true;
        var error = assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertTrue(error.getMessage().contains("does not match its CRC"), error.getMessage());
    }

    @Test
    void anInterruptEndsAFetch() throws Exception {
        assertInterruptible(() -> manager.fetchLogSegment(segment.metadata(), 0));
    }

    @Test
    void anInterruptEndsACopy() throws Exception {
        assertInterruptible(() -> manager.copyLogSegmentData(segment.metadata(), segment.data()));
    }

    @Test
    void anInterruptEndsADeletion() throws Exception {
        assertInterruptible(() -> {
            manager.deleteLogSegmentData(segment.metadata());
            return null;
        });
    }

    @Test
    void aSilentServiceFailsTheCallAtItsDeadline() {
        service.silent = true;
        configure(Map.of("aquifer.storage.endpoints", service.address(), "aquifer.deadline.ms", "300"));
        var error = assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(segment.metadata()));
        assertTrue(error.getMessage().contains("DEADLINE_EXCEEDED"), error.getMessage());
    }

    @Test
    void aSilentStreamFailsWhenItStalls() {
        service.silent = true;
        configure(Map.of("aquifer.storage.endpoints", service.address(), "aquifer.stall.ms", "100", "aquifer.max.attempts", "2"));
        var error = assertThrows(RemoteStorageException.class, () -> manager.fetchLogSegment(segment.metadata(), 0));
        assertTrue(error.getMessage().contains("did not go on"), error.getMessage());
    }

    @Test
    void anEndpointThatIsGoneIsReplacedByTheOther() throws Exception {
        try (ServerSocket nobody = new ServerSocket(0)) {
            int port = nobody.getLocalPort();
            nobody.close();
            configure(Map.of("aquifer.storage.endpoints", "127.0.0.1:" + port + "," + service.address()));
            for (int round = 0; round < 10; round++) {
                BuiltSegment each = BuiltSegment.of(folder, 10);
                try (InputStream stream = manager.fetchLogSegment(each.metadata(), LOG_BYTES - 10)) {
                    assertEquals(10, stream.readAllBytes().length);
                }
            }
        }
    }

    @Test
    void aSegmentKeepsItsEndpointAndSegmentsAreSpread() throws Exception {
        try (ScriptedStorage other = new ScriptedStorage(log)) {
            configure(Map.of("aquifer.storage.endpoints", other.address() + "," + service.address()));
            for (int round = 0; round < 5; round++) {
                manager.deleteLogSegmentData(segment.metadata());
            }
            assertTrue(service.calls.isEmpty() != other.calls.isEmpty(), "one segment went to both");
            for (int round = 0; round < 64; round++) {
                manager.deleteLogSegmentData(BuiltSegment.of(folder, 10).metadata());
            }
            assertFalse(service.calls.isEmpty() || other.calls.isEmpty(), "all segments went to one");
        }
    }

    @Test
    void everyCallHasARequestId() throws Exception {
        manager.deleteLogSegmentData(segment.metadata());
        String id = service.headers.get(0).get(Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER));
        assertTrue(id.matches("[0-9a-f]{32}"), id);
    }

    @Test
    void badPropertiesAreKafkasConfigException() {
        ConfigException error = assertThrows(ConfigException.class, () ->
                new GrpcRemoteStorageManager().configure(Map.of("aquifer.storage.endpoints", "nowhere")));
        assertTrue(error.getMessage().startsWith("aquifer.storage.endpoints=nowhere"), error.getMessage());
    }

    private void configure(Map<String, String> configs) {
        Map<String, String> all = new HashMap<>(configs);
        all.put("broker.id", "1");
        manager.close();
        manager.configure(all);
    }

    /** The call runs into silence, is interrupted, fails as Kafka expects, and the service learns of it. */
    private void assertInterruptible(Callable<?> call) throws Exception {
        service.silent = true;
        CompletableFuture<Boolean> flag = new CompletableFuture<>();
        Thread caller = new Thread(() -> {
            try {
                call.call();
                flag.completeExceptionally(new AssertionError("the call came back"));
            } catch (RemoteStorageException error) {
                flag.complete(Thread.currentThread().isInterrupted());
            } catch (Exception error) {
                flag.completeExceptionally(error);
            }
        });
        caller.start();
        assertTrue(service.arrived.await(LONGEST_S, TimeUnit.SECONDS));
        caller.interrupt();
        assertTrue(flag.get(LONGEST_S, TimeUnit.SECONDS), "the interrupt flag was lost");
        assertTrue(service.cancelled.await(LONGEST_S, TimeUnit.SECONDS));
    }
}
