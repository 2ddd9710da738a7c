package io.aquifer.kafka.rpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/**
 * The way to one service process. Calls begin with the newest certificates; those under way end on the connection on which they began,
 * which is closed when its last call has ended. Safe for any number of threads.
 */
final class RenewedChannel extends Channel {
    /** One of gRPC's channels, whose credentials are fixed, and the number of calls that begin. Guarded by the owner's lock. */
    private static final class Connection {
        private final TlsMaterial material;
        private final ManagedChannel channel;
        private CompletableFuture<Void> broken = CompletableFuture.completedFuture(null);
        private int beginning;

        Connection(TlsMaterial material, ManagedChannel channel) {
            this.material = material;
            this.channel = channel;
        }
    }

    private final Function<TlsMaterial, ManagedChannel> make;
    private final TlsFiles files;
    private final List<Connection> retired = new ArrayList<>();
    private Connection current;
    private boolean closed;

    /**
     * Connects with the first call.
     *
     * @param files null for plaintext.
     * @param make makes a connection with material, null for plaintext.
     */
    RenewedChannel(TlsFiles files, Function<TlsMaterial, ManagedChannel> make) {
        this.files = files;
        this.make = make;
        this.current = made();
    }

    @Override
    public <Q, A> ClientCall<Q, A> newCall(MethodDescriptor<Q, A> method, CallOptions options) {
        Connection connection = taken();
        AtomicBoolean begun = new AtomicBoolean();
        return new SimpleForwardingClientCall<>(connection.channel.newCall(method, options)) {
            @Override
            public void start(Listener<A> listener, Metadata headers) {
                try {
                    super.start(listener, headers);
                } finally {
                    if (begun.compareAndSet(false, true)) {
                        begun(connection);
                    }
                }
            }
        };
    }

    @Override
    public String authority() {
        return newest().channel.authority();
    }

    /**
     * Connects again at once when the connection is broken: gRPC by itself would wait ever longer, up to two minutes.
     *
     * @return completes when the connection is made or was not broken; the same for all who ask meanwhile, as gRPC keeps everyone who
     *     waits for as long as the service is away.
     */
    CompletableFuture<Void> reconnect() {
        Connection connection = newest();
        if (connection.channel.getState(false) != ConnectivityState.TRANSIENT_FAILURE) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> wait = new CompletableFuture<>();
        synchronized (this) {
            if (!connection.broken.isDone()) {
                wait = connection.broken;
            } else {
                connection.broken = wait;
                CompletableFuture<Void> made = wait;
                connection.channel.notifyWhenStateChanged(ConnectivityState.TRANSIENT_FAILURE, () -> made.complete(null));
            }
        }
        connection.channel.resetConnectBackoff();
        return wait;
    }

    /** Ends every connection; calls under way fail. */
    void shutdownNow() {
        synchronized (this) {
            closed = true;
        }
        all().forEach(ManagedChannel::shutdownNow);
    }

    /** Every connection that is not closed. */
    synchronized List<ManagedChannel> all() {
        List<ManagedChannel> found = new ArrayList<>(List.of(current.channel));
        retired.forEach(each -> found.add(each.channel));
        return found;
    }

    private Connection taken() {
        renewWhenDue();
        synchronized (this) {
            current.beginning++;
            return current;
        }
    }

    private void begun(Connection connection) {
        synchronized (this) {
            connection.beginning--;
        }
        closeRetired();
    }

    private Connection newest() {
        renewWhenDue();
        synchronized (this) {
            return current;
        }
    }

    private void renewWhenDue() {
        if (files == null) {
            return;
        }
        files.lookWhenDue();
        synchronized (this) {
            if (files.material() == current.material || closed) {
                return;
            }
            retired.add(current);
            current = made();
        }
        closeRetired();
    }

    private Connection made() {
        TlsMaterial material = files == null ? null : files.material();
        return new Connection(material, make.apply(material));
    }

    /** Lets gRPC close those that nobody is about to use: it refuses new calls at once and waits for those that have begun. */
    private void closeRetired() {
        List<ManagedChannel> unused;
        synchronized (this) {
            retired.removeIf(each -> each.channel.isTerminated());
            unused = retired.stream().filter(each -> each.beginning == 0).map(each -> each.channel).toList();
        }
        unused.forEach(ManagedChannel::shutdown);
    }
}
