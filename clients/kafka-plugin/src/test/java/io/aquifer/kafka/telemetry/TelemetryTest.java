package io.aquifer.kafka.telemetry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.grpc.Metadata;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.Test;

class TelemetryTest {
    private static final Metadata.Key<String> TRACE_PARENT = Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

    private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    private final String broker = UUID.randomUUID().toString();
    private final String base = "io.aquifer.kafka:type=GrpcRemoteStorageManager,broker=" + broker;

    @Test
    void operationsAreCountedInJmx() throws Exception {
        ObjectName name = new ObjectName(base);
        try (Telemetry telemetry = new Telemetry(settings(Map.of()), "GrpcRemoteStorageManager")) {
            try (Operation operation = telemetry.begin("copy", "a segment")) {
                assertEquals(1L, server.getAttribute(name, "copyUnderWay"));
                operation.moved(100);
                operation.retrying("NOT_READY", 1, Duration.ofMillis(5));
                operation.moved(20);
            }
            Operation failing = telemetry.begin("copy", "another segment");
            failing.failed(new IllegalStateException("no"));
            failing.close();
            failing.close();
            telemetry.gauge("Partitions", "partitions", () -> 7);
            assertEquals(2L, server.getAttribute(name, "copyTotal"));
            assertEquals(1L, server.getAttribute(name, "copyErrors"));
            assertEquals(1L, server.getAttribute(name, "copyRetries"));
            assertEquals(120L, server.getAttribute(name, "copyBytes"));
            assertEquals(0L, server.getAttribute(name, "copyUnderWay"));
            assertEquals(7L, server.getAttribute(name, "Partitions"));
        }
        assertFalse(server.isRegistered(name));
    }

    @Test
    void twoOfOneBrokerHaveNamesOfTheirOwn() throws Exception {
        try (Telemetry first = new Telemetry(settings(Map.of()), "GrpcRemoteStorageManager");
                Telemetry second = new Telemetry(settings(Map.of()), "GrpcRemoteStorageManager")) {
            first.begin("copy", "x").close();
            second.begin("delete", "x").close();
            assertEquals(1L, server.getAttribute(new ObjectName(base), "copyTotal"));
            assertEquals(1L, server.getAttribute(new ObjectName(base + ",instance=2"), "deleteTotal"));
        }
    }

    @Test
    void callsCarryATraceOnlyWhenTracesAreSent() {
        try (Telemetry telemetry = new Telemetry(settings(Map.of()), "GrpcRemoteStorageManager");
                Operation operation = telemetry.begin("copy", "x")) {
            assertNull(operation.headers().get(TRACE_PARENT));
        }
        Map<String, String> traced = Map.of("aquifer.telemetry.endpoint", "http://127.0.0.1:1");
        try (Telemetry telemetry = new Telemetry(settings(traced), "GrpcRemoteStorageManager");
                Operation operation = telemetry.begin("copy", "x")) {
            String parent = operation.headers().get(TRACE_PARENT);
            assertTrue(parent.matches("00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]"), parent);
            assertEquals(parent, operation.headers().get(TRACE_PARENT));
        }
    }

    private Settings settings(Map<String, String> more) {
        Map<String, String> all = new HashMap<>(more);
        all.put("aquifer.storage.endpoints", "127.0.0.1:1");
        all.put("broker.id", broker);
        return Settings.parse(Role.STORAGE, all);
    }
}
