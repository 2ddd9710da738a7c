package io.aquifer.kafka.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.ScriptedStorage;
import io.aquifer.kafka.support.SelfSigned;
import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS, and mTLS: the service below asks for a certificate of the broker. */
class TlsTest {
    @TempDir
    static Path folder;

    private static SelfSigned server;
    private static SelfSigned broker;
    private ScriptedStorage service;
    private BuiltSegment segment;

    @BeforeAll
    static void makeKeys() throws Exception {
        server = SelfSigned.make(folder, "server");
        broker = SelfSigned.make(folder, "broker");
    }

    @BeforeEach
    void start() throws Exception {
        SslContext context = GrpcSslContexts.forServer(server.certificate().toFile(), server.key().toFile())
                .trustManager(broker.certificate().toFile()).clientAuth(ClientAuth.REQUIRE).build();
        service = new ScriptedStorage(new byte[0], builder -> builder.sslContext(context));
        segment = BuiltSegment.of(folder, 10);
    }

    @AfterEach
    void stop() {
        service.close();
    }

    @Test
    void aBrokerWithItsCertificateIsServed() throws Exception {
        delete(Map.of(
                "aquifer.tls.ca.file", server.certificate().toString(),
                "aquifer.tls.certificate.file", broker.certificate().toString(),
                "aquifer.tls.key.file", broker.key().toString()));
        assertEquals(1, service.calls.size());
    }

    @Test
    void aBrokerWithoutACertificateIsRefused() {
        assertRefused(Map.of("aquifer.tls.ca.file", server.certificate().toString()));
    }

    @Test
    void aServiceOfAnotherAuthorityIsNotTrusted() {
        assertRefused(Map.of(
                "aquifer.tls.ca.file", broker.certificate().toString(),
                "aquifer.tls.certificate.file", broker.certificate().toString(),
                "aquifer.tls.key.file", broker.key().toString()));
    }

    @Test
    void aServiceOfAnotherNameIsNotTrusted() {
        assertRefused(Map.of(
                "aquifer.tls.ca.file", server.certificate().toString(),
                "aquifer.tls.certificate.file", broker.certificate().toString(),
                "aquifer.tls.key.file", broker.key().toString(),
                "aquifer.tls.server.name", "storage.example"));
    }

    @Test
    void plaintextIsNotUnderstood() {
        assertRefused(Map.of());
    }

    @Test
    void aFileThatIsNoCertificateIsRefusedAtOnce() throws Exception {
        String wrong = Files.writeString(folder.resolve("wrong.pem"), "not a certificate").toString();
        ConfigException error = assertThrows(ConfigException.class, () -> delete(Map.of("aquifer.tls.ca.file", wrong)));
        assertTrue(error.getMessage().startsWith("aquifer.tls.ca.file=" + wrong), error.getMessage());
    }

    private void assertRefused(Map<String, String> configs) {
        assertThrows(RemoteStorageException.class, () -> delete(configs));
        assertTrue(service.calls.isEmpty());
    }

    private void delete(Map<String, String> configs) throws RemoteStorageException {
        Map<String, String> all = new HashMap<>(configs);
        all.put("aquifer.storage.endpoints", service.address());
        all.put("aquifer.max.attempts", "2");
        try (GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager()) {
            manager.configure(all);
            manager.deleteLogSegmentData(segment.metadata());
        }
    }
}
