package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.telemetry.Operation;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.MethodDescriptor;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Makes calls: which endpoint, how much time, whether again. Safe for any number of threads. */
public final class Caller {
    private static final long RECONNECT_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

    private final Endpoints endpoints;
    private final RetryPolicy policy;
    private final Duration deadline;

    /** A caller of endpoints. */
    public Caller(Endpoints endpoints, Settings settings) {
        this.endpoints = endpoints;
        this.policy = RetryPolicy.of(settings);
        this.deadline = settings.duration(Property.DEADLINE_MS);
    }

    /**
     * One attempt of a call.
     *
     * @param <T> what it answers.
     */
    @FunctionalInterface
    public interface Attempt<T> {
        /** Calls with these options, which carry the deadline. */
        T run(Channel channel, CallOptions options) throws RpcException, StatusException, InterruptedException;
    }

    /**
     * Calls a method with one answer within {@code aquifer.deadline.ms}.
     *
     * @throws RpcException what it finally failed with.
     */
    public <Q, A> A unary(Operation operation, String affinity, MethodDescriptor<Q, A> method, Q request) throws RpcException {
        Attempt<A> attempt = (channel, options) -> ClientCalls.blockingUnaryCall(channel, method, options, request);
        return call(operation, affinity, deadline, attempt);
    }

    /**
     * Runs attempts until one succeeds or there is no next one.
     *
     * @param affinity see {@link Endpoints#order}.
     * @param total time for all of them.
     * @throws RpcException what it finally failed with; an interrupt leaves the thread's flag set.
     */
    public <T> T call(Operation operation, String affinity, Duration total, Attempt<T> attempt) throws RpcException {
        long endsNanos = System.nanoTime() + total.toNanos();
        Deque<Endpoint> queue = new ArrayDeque<>();
        RpcException last = null;
        for (int number = 1; ; number++) {
            if (queue.isEmpty()) {
                queue.addAll(endpoints.order(affinity));
            }
            Endpoint endpoint = queue.removeFirst();
            long remainingNanos = endsNanos - System.nanoTime();
            if (remainingNanos <= 0) {
                throw RpcException.outOfTime(last);
            }
            try {
                T answer = attempted(operation, endpoint, remainingNanos, attempt);
                endpoints.markUp(endpoint);
                return answer;
            } catch (RpcException failure) {
                last = failure;
                pauseOrThrow(operation, failure, number, endsNanos, !queue.isEmpty());
            }
        }
    }

    private <T> T attempted(Operation operation, Endpoint endpoint, long remainingNanos, Attempt<T> attempt) throws RpcException {
        operation.attempting(endpoint.toString());
        Channel channel = ClientInterceptors.intercept(
                endpoint.channel(), MetadataUtils.newAttachHeadersInterceptor(operation.headers()));
        try {
            awaitReconnect(endpoint, remainingNanos);
            return attempt.run(channel, CallOptions.DEFAULT.withDeadlineAfter(remainingNanos, TimeUnit.NANOSECONDS));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw RpcException.interrupted(error);
        } catch (StatusException | StatusRuntimeException | RpcException error) {
            if (Thread.currentThread().isInterrupted()) {
                throw RpcException.interrupted(asInterrupt(error));
            }
            RpcException failure = RpcException.of(error);
            if (failure.isEndpointDown()) {
                endpoints.markDown(endpoint);
            }
            throw failure;
        }
    }

    private static void awaitReconnect(Endpoint endpoint, long remainingNanos) throws InterruptedException {
        try {
            endpoint.reconnect().get(Math.min(RECONNECT_NANOS, remainingNanos), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException error) {
            // Still broken: the call fails at once and says why.
        }
    }

    private void pauseOrThrow(Operation operation, RpcException failure, int attempt, long endsNanos, boolean hasOther)
            throws RpcException {
        Optional<Duration> pause = policy.pause(failure, attempt);
        if (pause.isEmpty() || System.nanoTime() + pause.get().toNanos() - endsNanos >= 0) {
            throw failure;
        }
        Duration chosen = hasOther && failure.isEndpointDown() ? Duration.ZERO : pause.get();
        operation.retrying(failure.reason(), attempt, chosen);
        try {
            TimeUnit.NANOSECONDS.sleep(chosen.toNanos());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw RpcException.interrupted(error);
        }
    }

    private static InterruptedException asInterrupt(Throwable cause) {
        InterruptedException interrupt = new InterruptedException("interrupted while waiting for the service");
        interrupt.initCause(cause);
        return interrupt;
    }
}
