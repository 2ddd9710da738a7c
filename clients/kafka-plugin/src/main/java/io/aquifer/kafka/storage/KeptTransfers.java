package io.aquifer.kafka.storage;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.Uuid;

/**
 * Transfers whose reader has stopped before the end, each waiting a while for a reader that goes on there: the broker reads a segment in
 * many short reads, each of which opens a stream of its own. They wait stopped, by flow control; memory and time are bounded. Safe for
 * any number of threads.
 */
final class KeptTransfers implements AutoCloseable {
    /**
     * Which bytes a transfer brings.
     *
     * @param segment its segment.
     * @param endInclusive its last position; null for the end of the segment.
     */
    record Range(Uuid segment, Long endInclusive) {
    }

    private static final class Kept {
        private final Range range;
        private final Transfer transfer;
        private final long bytes;
        private Future<?> expiry;

        Kept(Range range, Transfer transfer, long bytes) {
            this.range = range;
            this.transfer = transfer;
            this.bytes = bytes;
        }
    }

    private final long longestMs;
    private final long mostBytes;
    private final long underWayBytes;
    private final long leastNanos;
    private final Set<Kept> all = new LinkedHashSet<>();
    private final ScheduledThreadPoolExecutor scheduler;
    private long bytes;
    private long continued;

    /**
     * @param longest how long one waits.
     * @param mostBytes of all together; the one that waits longest goes first.
     * @param underWayBytes what each has under way besides the bytes that it holds.
     * @param least time to its deadline that one must have to be continued.
     */
    KeptTransfers(Duration longest, long mostBytes, long underWayBytes, Duration least) {
        this.longestMs = longest.toMillis();
        this.mostBytes = mostBytes;
        this.underWayBytes = underWayBytes;
        this.leastNanos = least.toNanos();
        scheduler = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "aquifer-storage-kept");
            thread.setDaemon(true);
            return thread;
        });
        scheduler.setRemoveOnCancelPolicy(true);
    }

    /** How many bytes behind its position a transfer should hold. */
    int keptBytes() {
        return mostBytes == 0 ? 0 : Transfer.KEPT_BYTES;
    }

    /** Takes the one that can go on at a position; null when there is none. */
    Transfer take(Range range, long position) {
        List<Transfer> tooOld = new ArrayList<>();
        try {
            return taken(range, position, tooOld);
        } finally {
            tooOld.forEach(Transfer::close);
        }
    }

    /** Keeps one for a while, or ends it. */
    void keep(Range range, Transfer transfer) {
        List<Transfer> superfluous = new ArrayList<>();
        synchronized (this) {
            Kept kept = new Kept(range, transfer, transfer.heldBytes() + underWayBytes);
            try {
                kept.expiry = scheduler.schedule(() -> expired(kept), longestMs, TimeUnit.MILLISECONDS);
            } catch (RejectedExecutionException closed) {
                superfluous.add(transfer);
            }
            if (superfluous.isEmpty()) {
                all.add(kept);
                bytes += kept.bytes;
                while (bytes > mostBytes) {
                    superfluous.add(removed(all.iterator().next()));
                }
            }
        }
        superfluous.forEach(Transfer::close);
    }

    /** Ends those of a segment. */
    void drop(Uuid segment) {
        List<Transfer> dropped = new ArrayList<>();
        synchronized (this) {
            for (Kept each : List.copyOf(all)) {
                if (each.range.segment().equals(segment)) {
                    dropped.add(removed(each));
                }
            }
        }
        dropped.forEach(Transfer::close);
    }

    /** Number of those that wait. */
    synchronized long count() {
        return all.size();
    }

    /** How many were continued so far. */
    synchronized long continued() {
        return continued;
    }

    /** Ends all, and from now on every one at once. */
    @Override
    public void close() {
        List<Transfer> dropped = new ArrayList<>();
        synchronized (this) {
            scheduler.shutdownNow();
            List.copyOf(all).forEach(each -> dropped.add(removed(each)));
        }
        dropped.forEach(Transfer::close);
    }

    private synchronized Transfer taken(Range range, long position, List<Transfer> tooOld) {
        for (Iterator<Kept> each = List.copyOf(all).iterator(); each.hasNext();) {
            Kept kept = each.next();
            if (!kept.range.equals(range) || !kept.transfer.reaches(position)) {
                continue;
            }
            Transfer transfer = removed(kept);
            if (transfer.remainingNanos() >= leastNanos) {
                continued++;
                transfer.goTo(position);
                return transfer;
            }
            tooOld.add(transfer);
        }
        return null;
    }

    private void expired(Kept kept) {
        synchronized (this) {
            if (!all.contains(kept)) {
                return;
            }
            removed(kept);
        }
        kept.transfer.close();
    }

    private Transfer removed(Kept kept) {
        all.remove(kept);
        bytes -= kept.bytes;
        kept.expiry.cancel(false);
        return kept.transfer;
    }
}
