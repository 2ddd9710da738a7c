package io.aquifer.kafka.metadata;

import java.util.ArrayDeque;
import java.util.Deque;

/** Lets so many loads run at once and no more, so that a broker with many partitions does not flood the service when it starts. */
final class LoadQueue {
    private final int most;
    private final Deque<Runnable> waiting = new ArrayDeque<>();
    private int running;

    LoadQueue(int most) {
        this.most = most;
    }

    /** Starts a load now or later; it must call {@link #finished} once. */
    void submit(Runnable load) {
        synchronized (this) {
            if (running == most) {
                waiting.addLast(load);
                return;
            }
            running++;
        }
        load.run();
    }

    /** Makes room for the next one. */
    void finished() {
        Runnable next;
        synchronized (this) {
            next = waiting.pollFirst();
            if (next == null) {
                running--;
                return;
            }
        }
        next.run();
    }
}
