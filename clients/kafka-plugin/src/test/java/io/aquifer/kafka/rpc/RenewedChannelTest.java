package io.aquifer.kafka.rpc;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.telemetry.Operation;
import io.aquifer.kafka.telemetry.Telemetry;
import java.net.ServerSocket;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class RenewedChannelTest {
    @Test
    void everybodyWhoWaitsForAServiceThatIsAwayWaitsForTheSame() throws Exception {
        Settings settings = Settings.parse(Role.STORAGE, Map.of(
                "aquifer.storage.endpoints", "127.0.0.1:" + freePort(), "aquifer.max.attempts", "1", "aquifer.deadline.ms", "60000"));
        try (Telemetry telemetry = new Telemetry(settings, "RenewedChannelTest"); Endpoints endpoints = Endpoints.open(settings)) {
            Endpoint away = endpoints.all().get(0);
            Caller caller = new Caller(endpoints, settings);
            Set<CompletableFuture<Void>> waits = new HashSet<>();
            for (int round = 0; round < 20; round++) {
                try (Operation operation = telemetry.begin("delete", "x")) {
                    assertThrows(RpcException.class, () -> caller.unary(operation, null,
                            aquifer.storage.v1.RemoteStorageServiceGrpc.getGetCapabilitiesMethod(),
                            aquifer.storage.v1.RemoteStorageServiceOuterClass.GetCapabilitiesRequest.getDefaultInstance()));
                }
                waits.add(away.reconnect());
            }
            long waiting = waits.stream().filter(each -> !each.isDone()).count();
            assertTrue(waiting <= 1, waiting + " wait");
        }
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
