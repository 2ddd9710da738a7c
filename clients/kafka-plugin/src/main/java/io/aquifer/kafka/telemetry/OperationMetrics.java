package io.aquifer.kafka.telemetry;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/** Counts of one kind of operation: for JMX always, for OTLP when it is configured. */
final class OperationMetrics {
    private static final AttributeKey<String> OPERATION = AttributeKey.stringKey("aquifer.operation");
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("aquifer.outcome");

    private final LongAdder calls = new LongAdder();
    private final LongAdder errors = new LongAdder();
    private final LongAdder retries = new LongAdder();
    private final LongAdder bytes = new LongAdder();
    private final LongAdder nanos = new LongAdder();
    private final LongAdder underWay = new LongAdder();
    private final Attributes attributes;
    private final Attributes succeeded;
    private final Attributes failed;
    private final DoubleHistogram durationMetric;
    private final LongCounter bytesMetric;
    private final LongCounter retriesMetric;

    OperationMetrics(String name, Meter meter) {
        attributes = Attributes.of(OPERATION, name);
        succeeded = Attributes.of(OPERATION, name, OUTCOME, "ok");
        failed = Attributes.of(OPERATION, name, OUTCOME, "error");
        durationMetric = meter.histogramBuilder("aquifer.kafka.operation.duration").setUnit("s")
                .setDescription("Time of an operation, all attempts together.").build();
        bytesMetric = meter.counterBuilder("aquifer.kafka.operation.bytes").setUnit("By")
                .setDescription("Bytes sent to or received from the service.").build();
        retriesMetric = meter.counterBuilder("aquifer.kafka.operation.retries")
                .setDescription("Attempts that failed and were repeated.").build();
    }

    void started() {
        underWay.increment();
    }

    void retried() {
        retries.increment();
        retriesMetric.add(1, attributes);
    }

    void moved(long count) {
        bytes.add(count);
        bytesMetric.add(count, attributes);
    }

    void ended(long took, boolean error) {
        underWay.decrement();
        calls.increment();
        nanos.add(took);
        if (error) {
            errors.increment();
        }
        durationMetric.record(took / (double) TimeUnit.SECONDS.toNanos(1), error ? failed : succeeded);
    }

    /** The counts by the names that JMX shows. */
    Map<String, Long> snapshot() {
        Map<String, Long> counts = new LinkedHashMap<>();
        counts.put("Total", calls.sum());
        counts.put("Errors", errors.sum());
        counts.put("Retries", retries.sum());
        counts.put("Bytes", bytes.sum());
        counts.put("TimeMs", TimeUnit.NANOSECONDS.toMillis(nanos.sum()));
        counts.put("UnderWay", underWay.sum());
        return counts;
    }
}
