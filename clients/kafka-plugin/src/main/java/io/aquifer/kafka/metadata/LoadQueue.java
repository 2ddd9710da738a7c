package io.aquifer.kafka.metadata;

import java.util.ArrayDeque;
import java.util.Deque;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets so many loads run at once and no more, so that a broker with many partitions does not flood the service when it starts. Safe for
 * any number of threads.
 */
final class LoadQueue {
    private static final Logger LOG = LoggerFactory.getLogger(LoadQueue.class);

    private final int most;
    private final Deque<Runnable> waiting = new ArrayDeque<>();
    private int running;
    private boolean starting;

    LoadQueue(int most) {
        this.most = most;
    }

    /** Starts a load now or later; it must call {@link #finished} once. */
    void submit(Runnable load) {
        synchronized (this) {
            waiting.addLast(load);
        }
        startNext();
    }

    /** Makes room for the next one. */
    void finished() {
        synchronized (this) {
            running--;
        }
        startNext();
    }

    /** One thread at a time starts loads, one after the other: a load may be finished when it comes back, and so may thousands. */
    private void startNext() {
        synchronized (this) {
            if (starting) {
                return;
            }
            starting = true;
        }
        for (Runnable next = next(); next != null; next = next()) {
            try {
                next.run();
            } catch (RuntimeException error) {
                LOG.error("A partition's view cannot be loaded; it stays unready until the broker leads or follows it anew", error);
                synchronized (this) {
                    running--;
                }
            }
        }
    }

    private synchronized Runnable next() {
        Runnable next = running < most ? waiting.pollFirst() : null;
        if (next == null) {
            starting = false;
        } else {
            running++;
        }
        return next;
    }
}
