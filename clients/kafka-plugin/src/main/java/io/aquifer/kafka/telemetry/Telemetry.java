package io.aquifer.kafka.telemetry;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.exporter.otlp.metrics.OtlpGrpcMetricExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.export.PeriodicMetricReader;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.samplers.Sampler;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/** Traces and metrics of one manager: JMX always, OTLP when {@code aquifer.telemetry.endpoint} is set. */
public final class Telemetry implements AutoCloseable {
    private static final String SCOPE = "aquifer-kafka-plugin";
    private static final long FLUSH_S = 3;

    private final OpenTelemetry openTelemetry;
    private final Tracer tracer;
    private final Map<String, OperationMetrics> operations = new ConcurrentHashMap<>();
    private final Map<String, LongSupplier> gauges = new ConcurrentHashMap<>();
    private final String brokerId;
    private final JmxBean jmx;

    /** Telemetry as settings ask for; nothing is connected before there is something to send. */
    public Telemetry(Settings settings, String managerName) {
        openTelemetry = settings.text(Property.TELEMETRY_ENDPOINT)
                .<OpenTelemetry>map(endpoint -> exporting(settings, endpoint))
                .orElseGet(OpenTelemetry::noop);
        tracer = openTelemetry.getTracer(SCOPE);
        brokerId = settings.brokerId();
        jmx = JmxBean.register(managerName, settings.brokerId(), this::snapshot);
    }

    /** Begins an operation; Kafka's segment or partition goes into the span. */
    public Operation begin(String name, String subject) {
        OperationMetrics metrics = operations.computeIfAbsent(
                name, key -> new OperationMetrics(key, openTelemetry.getMeter(SCOPE)));
        Span span = tracer.spanBuilder("kafka-plugin/" + name)
                .setSpanKind(SpanKind.CLIENT)
                .setAttribute("aquifer.broker", brokerId)
                .setAttribute("aquifer.subject", subject)
                .startSpan();
        return new Operation(metrics, span);
    }

    /** Shows a number in JMX and, when configured, over OTLP as {@code aquifer.kafka.<name>}. */
    public void gauge(String jmxName, String name, LongSupplier value) {
        gauges.put(jmxName, value);
        openTelemetry.getMeter(SCOPE).gaugeBuilder("aquifer.kafka." + name).ofLongs()
                .buildWithCallback(measurement -> measurement.record(value.getAsLong()));
    }

    /** Sends what is left, for a few seconds at most. */
    @Override
    public void close() {
        jmx.close();
        if (openTelemetry instanceof OpenTelemetrySdk sdk) {
            sdk.shutdown().join(FLUSH_S, TimeUnit.SECONDS);
        }
    }

    private Map<String, Long> snapshot() {
        Map<String, Long> all = new TreeMap<>();
        operations.forEach((name, metrics) -> metrics.snapshot().forEach((count, value) -> all.put(name + count, value)));
        gauges.forEach((name, value) -> all.put(name, value.getAsLong()));
        return all;
    }

    private static OpenTelemetrySdk exporting(Settings settings, String endpoint) {
        Resource resource = Resource.getDefault().merge(Resource.create(Attributes.of(
                AttributeKey.stringKey("service.name"), SCOPE,
                AttributeKey.stringKey("service.instance.id"), "broker-" + settings.brokerId())));
        Duration timeout = Duration.ofSeconds(FLUSH_S);
        SdkTracerProvider tracing = SdkTracerProvider.builder()
                .setResource(resource)
                .setSampler(Sampler.parentBased(Sampler.traceIdRatioBased(settings.sampleRatio())))
                .addSpanProcessor(BatchSpanProcessor.builder(
                        OtlpGrpcSpanExporter.builder().setEndpoint(endpoint).setTimeout(timeout).build())
                        .setScheduleDelay(Duration.ofSeconds(1)).build())
                .build();
        SdkMeterProvider metering = SdkMeterProvider.builder()
                .setResource(resource)
                .registerMetricReader(PeriodicMetricReader.builder(
                        OtlpGrpcMetricExporter.builder().setEndpoint(endpoint).setTimeout(timeout).build())
                        .setInterval(settings.duration(Property.TELEMETRY_INTERVAL_MS)).build())
                .build();
        return OpenTelemetrySdk.builder().setTracerProvider(tracing).setMeterProvider(metering).build();
    }
}
