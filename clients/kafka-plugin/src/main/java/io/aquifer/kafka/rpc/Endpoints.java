package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.HostPort;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import io.aquifer.kafka.telemetry.Telemetry;
import io.grpc.ManagedChannel;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/**
 * The replicas of one service, and in which order to ask them: those that answer come first.
 *
 * <p>Calls with an affinity see them in the order of a rendezvous hash, so that one segment is read from one replica's cache, and only
 * the segments of a replica that is gone move. Calls without one go round.
 */
public final class Endpoints implements AutoCloseable {
    private final List<Endpoint> all;
    private final TlsFiles tlsFiles;
    private final long downNanos;
    private final AtomicInteger next = new AtomicInteger();

    private Endpoints(List<Endpoint> all, TlsFiles tlsFiles, Duration down) {
        this.all = List.copyOf(all);
        this.tlsFiles = tlsFiles;
        this.downNanos = down.toNanos();
    }

    /**
     * The endpoints of settings; nothing is connected before the first call.
     *
     * @throws SettingsException the files of {@code aquifer.tls} cannot be read or do not fit together.
     */
    public static Endpoints open(Settings settings) {
        TlsFiles tlsFiles = settings.tls() ? new TlsFiles(settings) : null;
        ChannelFactory factory = new ChannelFactory(settings);
        Function<HostPort, Endpoint> made = address ->
                new Endpoint(address, new RenewedChannel(tlsFiles, material -> factory.open(address, material)));
        return new Endpoints(settings.endpoints().stream().map(made).toList(), tlsFiles, settings.duration(Property.ENDPOINT_DOWN_MS));
    }

    /** Shows how often the files of {@code aquifer.tls} were read again, and how often they were refused. */
    public void showIn(Telemetry telemetry) {
        if (tlsFiles != null) {
            telemetry.gauge("TlsReads", "tls.reads", tlsFiles::reads);
            telemetry.gauge("TlsReadsRefused", "tls.reads.refused", tlsFiles::refusals);
        }
    }

    /** Every endpoint. */
    public List<Endpoint> all() {
        return all;
    }

    /**
     * Every endpoint once, in the order to try.
     *
     * @param affinity calls with the same one go to the same endpoint while it answers; null: any.
     */
    public List<Endpoint> order(String affinity) {
        List<Endpoint> ordered = new ArrayList<>(all);
        if (all.size() == 1) {
            return ordered;
        }
        if (affinity == null) {
            Collections.rotate(ordered, -Math.floorMod(next.getAndIncrement(), all.size()));
        } else {
            ordered.sort(Comparator.comparingLong(each -> weight(each.toString(), affinity)));
        }
        ordered.sort(Comparator.comparing(Endpoint::isDown));
        return ordered;
    }

    /** Notes that an endpoint did not answer; it is asked last for a while. */
    public void markDown(Endpoint endpoint) {
        endpoint.markDown(downNanos);
    }

    /** Notes that an endpoint answered. */
    public void markUp(Endpoint endpoint) {
        endpoint.markUp();
    }

    /** Ends every connection; calls under way fail. Returns within a few seconds. */
    @Override
    public void close() {
        all.forEach(Endpoint::shutdownNow);
        for (ManagedChannel connection : all.stream().flatMap(each -> each.connections().stream()).toList()) {
            try {
                connection.awaitTermination(2, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    private static long weight(String endpoint, String affinity) {
        try {
            byte[] text = (endpoint + "\0" + affinity).getBytes(StandardCharsets.UTF_8);
            return ByteBuffer.wrap(MessageDigest.getInstance("SHA-256").digest(text)).getLong();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java has SHA-256", error);
        }
    }
}
