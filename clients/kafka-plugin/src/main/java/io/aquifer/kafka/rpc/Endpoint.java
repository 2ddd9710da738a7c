package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.HostPort;
import io.grpc.Channel;
import io.grpc.ManagedChannel;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** One service process and the connection to it. */
public final class Endpoint {
    private final HostPort address;
    private final RenewedChannel channel;
    private volatile long downUntilNanos = System.nanoTime();

    Endpoint(HostPort address, RenewedChannel channel) {
        this.address = address;
        this.channel = channel;
    }

    /** Where it is. */
    public HostPort address() {
        return address;
    }

    /** The connection, made by the first call. */
    public Channel channel() {
        return channel;
    }

    /**
     * Connects again at once when the connection is broken: gRPC by itself would wait ever longer, up to two minutes.
     *
     * @return completes when the connection is made or was not broken.
     */
    public CompletableFuture<Void> reconnect() {
        return channel.reconnect();
    }

    /** Ends its connections; calls under way fail. */
    void shutdownNow() {
        channel.shutdownNow();
    }

    /** Its connections that are not closed. */
    List<ManagedChannel> connections() {
        return channel.all();
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
