package io.aquifer.kafka.metadata;

import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc;
import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc.RemoteLogMetadataServiceStub;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.rpc.Endpoint;
import io.aquifer.kafka.rpc.Endpoints;
import io.aquifer.kafka.rpc.RpcException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Where watches go, and when they try again. */
final class WatchConnections {
    private static final long FIRST_BACKOFF_MS = 100;

    private final OutageLog outages = new OutageLog();
    private final Endpoints endpoints;
    private final ScheduledExecutorService scheduler;
    private final long lifetimeNanos;
    private final long deadlineNanos;
    private final long backoffMaxMs;

    WatchConnections(Endpoints endpoints, ScheduledExecutorService scheduler, Settings settings) {
        this.endpoints = endpoints;
        this.scheduler = scheduler;
        this.lifetimeNanos = settings.duration(Property.WATCH_DEADLINE_MS).toNanos();
        this.deadlineNanos = settings.duration(Property.DEADLINE_MS).toNanos();
        this.backoffMaxMs = settings.number(Property.WATCH_BACKOFF_MAX_MS);
    }

    /**
     * An endpoint with a stub of it.
     *
     * @param stub for one stream; it has the deadline.
     */
    record Target(Endpoints endpoints, Endpoint endpoint, RemoteLogMetadataServiceStub stub, OutageLog outages) {
        void failed(RpcException failure) {
            if (failure.isEndpointDown()) {
                endpoints.markDown(endpoint);
                outages.failed(endpoint.toString(), failure.getMessage());
            }
        }

        void answered() {
            endpoints.markUp(endpoint);
            outages.answered(endpoint.toString());
        }

        @Override
        public String toString() {
            return endpoint.toString();
        }
    }

    /** The next endpoint for a watch; lives differ, so that not all watches end at once. */
    Target next() {
        return target((long) (lifetimeNanos * ThreadLocalRandom.current().nextDouble(0.8, 1.0)));
    }

    /** The next endpoint for a listing. */
    Target nextForListing() {
        return target(deadlineNanos);
    }

    private Target target(long nanos) {
        Endpoint endpoint = endpoints.order(null).get(0);
        endpoint.reconnect();
        RemoteLogMetadataServiceStub stub = RemoteLogMetadataServiceGrpc.newStub(endpoint.channel())
                .withDeadlineAfter(nanos, TimeUnit.NANOSECONDS);
        return new Target(endpoints, endpoint, stub, outages);
    }

    /** Runs something after a while, unless the manager is closed by then. */
    void later(Runnable task, long delayMs) {
        try {
            scheduler.schedule(task, delayMs, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException error) {
            // Closed.
        }
    }

    /** The pause after so many failures in a row, with jitter. */
    long backoffMs(int failures) {
        long longest = Math.min(backoffMaxMs, FIRST_BACKOFF_MS << Math.min(failures - 1, 10));
        return ThreadLocalRandom.current().nextLong(longest / 2, longest + 1);
    }
}
