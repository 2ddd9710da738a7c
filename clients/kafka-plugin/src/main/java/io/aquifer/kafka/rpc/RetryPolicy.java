package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.grpc.Status.Code;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;

/**
 * When a failed attempt is repeated, and after how long.
 *
 * <p>What did not answer is asked again with back-off and jitter; a spent quota when and as {@code RetryInfo} says; a write that
 * met another one at once. Nothing else is.
 *
 * @param maxAttempts attempts of one call, the first included.
 * @param backoffMin pause before the first retry; doubles.
 * @param backoffMax longest pause, unless the service asks for more.
 */
public record RetryPolicy(int maxAttempts, Duration backoffMin, Duration backoffMax) {

    /** The policy that settings ask for. */
    public static RetryPolicy of(Settings settings) {
        return new RetryPolicy(
                settings.number(Property.MAX_ATTEMPTS),
                settings.duration(Property.RETRY_BACKOFF_MS),
                settings.duration(Property.RETRY_BACKOFF_MAX_MS));
    }

    /**
     * Pause before the next attempt, never below what the service asked for.
     *
     * @param failure of the attempt that failed.
     * @param attempt its number, from 1.
     * @return empty when there is no next one.
     */
    public Optional<Duration> pause(RpcException failure, int attempt) {
        if (attempt >= maxAttempts || !failure.isRepeatable()) {
            return Optional.empty();
        }
        if (failure.code() == Code.RESOURCE_EXHAUSTED) {
            return failure.retryAfter().map(asked -> scaled(asked, ThreadLocalRandom.current().nextDouble(1.0, 1.1)));
        }
        if (failure.code() != Code.UNAVAILABLE && failure.code() != Code.ABORTED && !failure.isEndpointDown()) {
            return Optional.empty();
        }
        Duration backoff = scaled(backoff(attempt), ThreadLocalRandom.current().nextDouble(0.5, 1.0));
        return Optional.of(failure.retryAfter().filter(asked -> asked.compareTo(backoff) > 0).orElse(backoff));
    }

    /** The pause after so many failures in a row, without jitter. */
    public Duration backoff(int failures) {
        Duration grown = backoffMin.multipliedBy(1L << Math.min(failures - 1, 20));
        return grown.compareTo(backoffMax) > 0 ? backoffMax : grown;
    }

    private static Duration scaled(Duration duration, double factor) {
        return Duration.ofNanos((long) (duration.toNanos() * factor));
    }
}
