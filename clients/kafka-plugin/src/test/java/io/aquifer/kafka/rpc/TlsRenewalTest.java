package io.aquifer.kafka.rpc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.Eventually;
import io.aquifer.kafka.support.ScriptedStorage;
import io.aquifer.kafka.support.SelfSigned;
import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.management.ObjectName;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Certificates that are replaced while the broker runs. */
class TlsRenewalTest {
    private static final int LOG_BYTES = 100 * 64 * 1024;
    @TempDir
    static Path keys;

    private static SelfSigned server;
    private static SelfSigned first;
    private static SelfSigned second;

    @TempDir
    Path folder;

    private final byte[] log = new byte[LOG_BYTES];
    private final String brokerId = UUID.randomUUID().toString();
    private final GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager();
    private ScriptedStorage service;
    private BuiltSegment segment;

    @BeforeAll
    static void makeKeys() throws Exception {
        server = SelfSigned.make(keys, "server");
        first = SelfSigned.make(keys, "first");
        second = SelfSigned.make(keys, "second");
    }

    @BeforeEach
    void start() throws Exception {
        new Random(1).nextBytes(log);
        Path both = Files.writeString(folder.resolve("both.pem"), Files.readString(first.certificate()) + Files.readString(second.certificate()));
        SslContext context = GrpcSslContexts.forServer(server.certificate().toFile(), server.key().toFile())
                .trustManager(both.toFile()).clientAuth(ClientAuth.REQUIRE).build();
        service = new ScriptedStorage(log, builder -> builder.sslContext(context));
        segment = BuiltSegment.of(folder, 10);
        put("ca.pem", server.certificate());
        put("broker.pem", first.certificate());
        put("broker.key", first.key());
    }

    @AfterEach
    void stop() {
        manager.close();
        service.close();
    }

    @Test
    void callsBeginWithTheNewCertificateAndTheOldConnectionIsClosed() throws Exception {
        configure();
        manager.deleteLogSegmentData(segment.metadata());
        put("broker.pem", second.certificate());
        put("broker.key", second.key());
        Eventually.eventually("the new certificate is shown", () -> peerOfADeletion().equals("CN=second"));
        assertEquals("CN=first", service.peers.get(0));
        assertEquals(1L, counted("TlsReads"));
        Eventually.eventually("one connection is left", () -> service.connections.get() == 1);
    }

    @Test
    void aReadUnderWayEndsOnItsConnection() throws Exception {
        configure();
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            byte[] begun = stream.readNBytes(100);
            put("broker.pem", second.certificate());
            put("broker.key", second.key());
            Eventually.eventually("the new certificate is shown", () -> peerOfADeletion().equals("CN=second"));
            byte[] rest = stream.readAllBytes();
            byte[] all = new byte[LOG_BYTES];
            System.arraycopy(begun, 0, all, 0, begun.length);
            System.arraycopy(rest, 0, all, begun.length, rest.length);
            assertArrayEquals(log, all);
        }
        assertEquals(List.of(0L), service.fetchedFrom);
        Eventually.eventually("one connection is left", () -> service.connections.get() == 1);
    }

    @Test
    void readsThatStoppedEarlyAndCopiesDoNotKeepTheOldConnection() throws Exception {
        configure();
        manager.copyLogSegmentData(segment.metadata(), segment.data());
        try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
            assertEquals(100, stream.readNBytes(100).length);
        }
        put("broker.pem", second.certificate());
        put("broker.key", second.key());
        Eventually.eventually("the new certificate is shown", () -> peerOfADeletion().equals("CN=second"));
        Eventually.eventually("one connection is left", () -> service.connections.get() == 1);
    }

    @Test
    void noCallFailsWhileCertificatesAreReplacedAgainAndAgain() throws Exception {
        configure("1");
        AtomicBoolean over = new AtomicBoolean();
        List<CompletableFuture<Void>> callers = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            callers.add(CompletableFuture.runAsync(() -> {
                try {
                    while (!over.get()) {
                        manager.deleteLogSegmentData(segment.metadata());
                    }
                } catch (RemoteStorageException error) {
                    throw new CompletionException(error);
                }
            }, task -> new Thread(task, "caller").start()));
        }
        for (int round = 1; round <= 10; round++) {
            SelfSigned next = round % 2 == 1 ? second : first;
            long reads = round;
            put("broker.pem", next.certificate());
            put("broker.key", next.key());
            Eventually.eventually("the files were read", () ->
                    counted("TlsReads") >= reads || callers.stream().anyMatch(CompletableFuture::isDone));
        }
        over.set(true);
        for (CompletableFuture<Void> caller : callers) {
            caller.get(60, TimeUnit.SECONDS);
        }
    }

    @Test
    void filesThatDoNotFitTogetherAreRefusedAndTheFormerStayInUse() throws Exception {
        configure();
        put("broker.pem", second.certificate());
        Eventually.eventually("the files are refused", () -> {
            assertEquals("CN=first", peerOfADeletion());
            return counted("TlsReadsRefused") > 0;
        });
        assertEquals("CN=first", peerOfADeletion());
        assertEquals(0L, counted("TlsReads"));
        put("broker.key", second.key());
        Eventually.eventually("the new certificate is shown", () -> peerOfADeletion().equals("CN=second"));
    }

    @Test
    void aHalfWrittenFileAndAMissingOneAreRefused() throws Exception {
        configure();
        String whole = Files.readString(server.certificate());
        Files.writeString(folder.resolve("ca.pem"), whole + whole.substring(0, whole.length() / 2));
        Eventually.eventually("the half is refused", () -> peerOfADeletion().equals("CN=first") && counted("TlsReadsRefused") > 0);
        Files.delete(folder.resolve("ca.pem"));
        long before = counted("TlsReadsRefused");
        Eventually.eventually("what is missing is refused", () -> peerOfADeletion().equals("CN=first") && counted("TlsReadsRefused") > before);
        put("ca.pem", server.certificate());
        Eventually.eventually("all is well again", () -> peerOfADeletion().equals("CN=first") && counted("TlsReads") == 1);
    }

    @Test
    void aNewAuthorityIsTrusted() throws Exception {
        put("ca.pem", first.certificate());
        configure();
        assertThrows(RemoteStorageException.class, () -> manager.deleteLogSegmentData(segment.metadata()));
        put("ca.pem", server.certificate());
        Eventually.eventually("the service is trusted", () -> {
            try {
                manager.deleteLogSegmentData(segment.metadata());
                return true;
            } catch (RemoteStorageException notYet) {
                return false;
            }
        });
    }

    @Test
    void aKeyOfAnotherCertificateIsRefusedAtTheStart() throws Exception {
        put("broker.key", second.key());
        ConfigException error = assertThrows(ConfigException.class, this::configure);
        assertTrue(error.getMessage().startsWith("aquifer.tls.key.file=" + folder.resolve("broker.key")), error.getMessage());
    }

    private String peerOfADeletion() throws RemoteStorageException {
        manager.deleteLogSegmentData(segment.metadata());
        return service.peers.get(service.peers.size() - 1);
    }

    private long counted(String attribute) throws Exception {
        ObjectName name = new ObjectName("io.aquifer.kafka:type=GrpcRemoteStorageManager,broker=" + brokerId);
        return (Long) ManagementFactory.getPlatformMBeanServer().getAttribute(name, attribute);
    }

    private void put(String name, Path content) throws Exception {
        Path whole = Files.copy(content, folder.resolve(name + ".new"), StandardCopyOption.REPLACE_EXISTING);
        Files.move(whole, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
    }

    private void configure() {
        configure("2");
    }

    private void configure(String maxAttempts) {
        Map<String, String> configs = new HashMap<>();
        configs.put("broker.id", brokerId);
        configs.put("aquifer.storage.endpoints", service.address());
        configs.put("aquifer.max.attempts", maxAttempts);
        configs.put("aquifer.tls.reload.ms", "1");
        configs.put("aquifer.tls.ca.file", folder.resolve("ca.pem").toString());
        configs.put("aquifer.tls.certificate.file", folder.resolve("broker.pem").toString());
        configs.put("aquifer.tls.key.file", folder.resolve("broker.key").toString());
        manager.configure(configs);
    }
}
