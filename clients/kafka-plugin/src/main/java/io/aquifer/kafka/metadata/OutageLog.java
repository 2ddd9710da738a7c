package io.aquifer.kafka.metadata;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Says once that an endpoint does not answer, and once that it does again, however many watches find out. */
final class OutageLog {
    private static final Logger LOG = LoggerFactory.getLogger(OutageLog.class);

    private final Set<String> down = ConcurrentHashMap.newKeySet();

    void failed(String endpoint, String reason) {
        if (down.add(endpoint)) {
            LOG.warn("The metadata service at {} does not answer; queries go on with what is known, partitions that are new wait: {}",
                    endpoint, reason);
        }
    }

    void answered(String endpoint) {
        if (!down.isEmpty() && down.remove(endpoint)) {
            LOG.info("The metadata service at {} answers again", endpoint);
        }
    }
}
