package io.aquifer.kafka.metadata;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * What this broker knows of one partition's remote segments, in memory. Changes come from the watch alone, in the order of versions;
 * everything else asks. When the watch begins again, queries are answered from what was known until everything is here once more.
 * Safe for any number of threads.
 */
final class PartitionView {
    private final VisibilityWaits waits = new VisibilityWaits();
    private PartitionContents arriving = new PartitionContents();
    private PartitionContents shown = arriving;
    private int load;
    private boolean ready;

    /** Takes a segment as it is after a change. */
    synchronized void apply(RemoteLogSegmentMetadata segment, long changeVersion) {
        arriving.apply(segment, changeVersion);
        waits.changed(this::shows);
    }

    /** Takes a step of the partition's deletion. */
    synchronized void apply(RemotePartitionDeleteState state, long changeVersion) {
        arriving.apply(state, changeVersion);
        waits.changed(this::shows);
    }

    /** Takes a change of something that Kafka does not ask for. */
    synchronized void passed(long changeVersion) {
        arriving.passed(changeVersion);
    }

    /** Last version received; 0 for none. */
    synchronized long version() {
        return arriving.version();
    }

    /** Expects everything once more, from version 0 on. */
    synchronized void beginAgain() {
        arriving = new PartitionContents();
        load++;
    }

    /** Number of the load under way: how often it began again. */
    synchronized int load() {
        return load;
    }

    /** Whether everything that existed when the partition was assigned is here. Never becomes false again. */
    synchronized boolean isReady() {
        return ready;
    }

    /** Notes that a load has brought everything; one that was overtaken by the next changes nothing. */
    synchronized void markReady(int finishedLoad) {
        if (finishedLoad != load) {
            return;
        }
        shown = arriving;
        ready = true;
        notifyAll();
        waits.changed(this::shows);
    }

    /** Waits until it is ready; false when the time is over. */
    synchronized boolean awaitReady(long timeoutNanos) throws InterruptedException {
        long ends = System.nanoTime() + timeoutNanos;
        while (!ready) {
            long remaining = ends - System.nanoTime();
            if (remaining <= 0) {
                return false;
            }
            TimeUnit.NANOSECONDS.timedWait(this, remaining);
        }
        return true;
    }

    /** Whether the deletion of the partition's remote data has finished. */
    synchronized boolean isDeleted() {
        return shown.isDeleted();
    }

    /** The finished segment that holds the offset in the epoch. */
    synchronized Optional<RemoteLogSegmentMetadata> find(int epoch, long offset) {
        return shown.find(epoch, offset);
    }

    /** Every segment that is not gone, by start offset. */
    synchronized List<RemoteLogSegmentMetadata> list() {
        return shown.list();
    }

    /** Those of an epoch, by start offset. */
    synchronized List<RemoteLogSegmentMetadata> list(int epoch) {
        return shown.list(epoch);
    }

    /** Highest offset ever finished in the epoch, -1 for none; empty while the service has not been asked. */
    synchronized Optional<Long> highest(int epoch) {
        return shown.highest(epoch);
    }

    /** Notes what the service says about deleted segments too, -1 for none; returns the highest as it is now. */
    synchronized long rememberHighest(int epoch, long offset) {
        shown.rememberHighest(epoch, offset);
        return shown.highest(epoch).orElse(offset);
    }

    /** Number of segments that are not gone. */
    synchronized int size() {
        return shown.size();
    }

    /** Fails the writes that wait to show. */
    synchronized void stop(String message) {
        waits.fail(message);
    }

    /** Checks at once, and from now on with every change. */
    synchronized void await(VisibilityWaits.Wanted wanted) {
        waits.add(wanted);
        waits.changed(this::shows);
    }

    /** Whether every listed segment has arrived in the listed state or a later one. */
    synchronized boolean reaches(Map<Uuid, RemoteLogSegmentState> listed) {
        return arriving.isDeleted()
                || listed.entrySet().stream().allMatch(each -> arriving.hasReached(each.getKey(), each.getValue()));
    }

    private boolean shows(VisibilityWaits.Wanted wanted) {
        if (wanted.deleteState() != null) {
            return shown.hasReached(wanted.deleteState());
        }
        boolean isOver = ready && wanted.segmentState() == RemoteLogSegmentState.DELETE_SEGMENT_FINISHED;
        return shown.isDeleted()
                || shown.hasReached(wanted.segmentId(), wanted.segmentState())
                || (isOver && shown.lacks(wanted.segmentId()));
    }
}
