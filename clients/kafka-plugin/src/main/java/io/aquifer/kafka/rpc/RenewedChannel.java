package io.aquifer.kafka.rpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/**
 * The way to one service process. Calls begin with the newest certificates; those under way end on the connection on which they began,
 * which is closed when its last call has ended. Safe for any number of threads.
 */
final class RenewedChannel extends Channel {
    /** One of gRPC's channels, whose credentials are fixed, and the number of its calls. Guarded by the owner's lock. */
    private static final class Connection {
        private final TlsMaterial material;
        private final ManagedChannel channel;
        private CompletableFuture<Void> broken = CompletableFuture.completedFuture(null);
        private int calls;

        Connection(TlsMaterial material, ManagedChannel channel) {
            this.material = material;
            this.channel = channel;
        }
    }

    private final Function<TlsMaterial, ManagedChannel> make;
    private final TlsFiles files;
    private final Set<Connection> retired = new HashSet<>();
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
        Connection connection = begun();
        AtomicBoolean ended = new AtomicBoolean();
        return new SimpleForwardingClientCall<>(connection.channel.newCall(method, options)) {
            @Override
            public void start(Listener<A> listener, Metadata headers) {
                try {
                    super.start(new Noting<>(listener, () -> ended(connection, ended)), headers);
                } catch (RuntimeException | Error error) {
                    ended(connection, ended);
                    throw error;
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

    private Connection begun() {
        renewWhenDue();
        synchronized (this) {
            current.calls++;
            return current;
        }
    }

    private void ended(Connection connection, AtomicBoolean ended) {
        if (ended.compareAndSet(false, true)) {
            synchronized (this) {
                connection.calls--;
            }
            closeUnused(connection);
        }
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
        Connection former;
        synchronized (this) {
            if (files.material() == current.material || closed) {
                return;
            }
            former = current;
            current = made();
            retired.add(former);
        }
        closeUnused(former);
    }

    private Connection made() {
        TlsMaterial material = files == null ? null : files.material();
        return new Connection(material, make.apply(material));
    }

    private void closeUnused(Connection connection) {
        synchronized (this) {
            if (connection.calls > 0 || !retired.remove(connection)) {
                return;
            }
        }
        connection.channel.shutdown();
    }

    private static final class Noting<A> extends SimpleForwardingClientCallListener<A> {
        private final Runnable closed;

        Noting(ClientCall.Listener<A> listener, Runnable closed) {
            super(listener);
            this.closed = closed;
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            closed.run();
            super.onClose(status, trailers);
        }
    }
}
