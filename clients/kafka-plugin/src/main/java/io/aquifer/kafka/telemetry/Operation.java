package io.aquifer.kafka.telemetry;

import io.grpc.Metadata;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * One thing that Kafka asked for, with all its attempts: a span, its metrics, and what travels along in the calls' headers.
 *
 * <p>End it exactly once with {@link #close}; further ends count for nothing.
 */
public final class Operation implements AutoCloseable {
    private static final Metadata.Key<String> REQUEST_ID = Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER);

    private final OperationMetrics metrics;
    private final Span span;
    private final String requestId = UUID.randomUUID().toString().replace("-", "");
    private final long startedNanos = System.nanoTime();
    private final AtomicBoolean ended = new AtomicBoolean();
    private volatile Throwable failure;

    Operation(OperationMetrics metrics, Span span) {
        this.metrics = metrics;
        this.span = span;
        metrics.started();
    }

    /** Headers of every call of it: W3C trace context and a request id. */
    public Metadata headers() {
        Metadata headers = new Metadata();
        headers.put(REQUEST_ID, requestId);
        W3CTraceContextPropagator.getInstance().inject(Context.root().with(span), headers, (carrier, key, value) ->
                carrier.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value));
        return headers;
    }

    /** Notes the endpoint that is asked now. */
    public void attempting(String endpoint) {
        span.setAttribute("aquifer.endpoint", endpoint);
    }

    /** Notes which index is read. */
    public void reading(String index) {
        span.setAttribute("aquifer.index", index);
    }

    /** Notes that it goes on with what an earlier one has opened: no call begins. */
    public void continuing() {
        span.setAttribute("aquifer.continued", true);
    }

    /** Notes that an attempt failed and another one follows. */
    public void retrying(String reason, int attempt, Duration pause) {
        metrics.retried();
        span.addEvent("retry", Attributes.of(
                AttributeKey.stringKey("aquifer.error.reason"), reason,
                AttributeKey.longKey("aquifer.attempt"), (long) attempt,
                AttributeKey.longKey("aquifer.pause_ms"), pause.toMillis()));
    }

    /** Notes bytes sent or received. */
    public void moved(long bytes) {
        metrics.moved(bytes);
    }

    /** Notes what it failed with; returns the same. */
    public <E extends Throwable> E failed(E error) {
        failure = error;
        return error;
    }

    /** Ends it. */
    @Override
    public void close() {
        if (!ended.compareAndSet(false, true)) {
            return;
        }
        Throwable error = failure;
        metrics.ended(System.nanoTime() - startedNanos, error != null);
        if (error != null) {
            span.setStatus(StatusCode.ERROR, String.valueOf(error.getMessage()));
        }
        span.end();
    }
}
