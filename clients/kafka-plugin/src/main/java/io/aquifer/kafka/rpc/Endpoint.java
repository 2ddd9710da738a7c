package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.HostPort;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import java.util.concurrent.CompletableFuture;

/** One service process and the connection to it. */
public final class Endpoint {
    private final HostPort address;
    private final ManagedChannel channel;
    private volatile long downUntilNanos = System.nanoTime();

    Endpoint(HostPort address, ManagedChannel channel) {
        this.address = address;
        this.channel = channel;
    }

    /** Where it is. */
    public HostPort address() {
        return address;
    }

    /** The connection, made by the first call. */
    public ManagedChannel channel() {
        return channel;
    }

    /**
     * Connects again at once when the connection is broken: gRPC by itself would wait ever longer, up to two minutes.
     *
     * @return completes when the connection is made or was not broken.
     */
    public CompletableFuture<Void> reconnect() {
        CompletableFuture<Void> connected = new CompletableFuture<>();
        if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
            channel.notifyWhenStateChanged(ConnectivityState.TRANSIENT_FAILURE, () -> connected.complete(null));
            channel.resetConnectBackoff();
        } else {
            connected.complete(null);
        }
        return connected;
    }

    /** Whether it did not answer lately. */
    boolean isDown() {
        return downUntilNanos - System.nanoTime() > 0;
    }

    void markDown(long nanos) {
        downUntilNanos = System.nanoTime() + nanos;
    }

    void markUp() {
        downUntilNanos = System.nanoTime();
    }

    @Override
    public String toString() {
        return address.toString();
    }
}
