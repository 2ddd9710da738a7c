package io.aquifer.kafka.metadata;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
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
 * everything else asks. Safe for any number of threads.
 */
final class PartitionView {
    private static final int GONE_REMEMBERED = 1_000;
    private static final long NEVER_ASKED = -2;

    private final Map<Uuid, RemoteLogSegmentMetadata> segments = new HashMap<>();
    private final Map<Integer, EpochIndex> epochs = new HashMap<>();
    private final Map<Integer, Long> highestFromService = new HashMap<>();
    private final Map<Uuid, Boolean> gone = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Uuid, Boolean> eldest) {
            return size() > GONE_REMEMBERED;
        }
    };
    private final VisibilityWaits waits = new VisibilityWaits();
    private RemotePartitionDeleteState deleteState;
    private long version;
    private boolean ready;

    /** Takes a segment as it is after a change. */
    synchronized void apply(RemoteLogSegmentMetadata segment, long changeVersion) {
        version = Math.max(version, changeVersion);
        Uuid id = segment.remoteLogSegmentId().id();
        RemoteLogSegmentMetadata before = segments.get(id);
        if (gone.containsKey(id) || (before != null && before.state().id() > segment.state().id())) {
            return;
        }
        indexed(segment);
        if (segment.state() == RemoteLogSegmentState.DELETE_SEGMENT_FINISHED) {
            segments.remove(id);
            gone.put(id, Boolean.TRUE);
        } else {
            segments.put(id, segment);
        }
        waits.changed(this::shows);
    }

    /** Takes a step of the partition's deletion. */
    synchronized void apply(RemotePartitionDeleteState state, long changeVersion) {
        version = Math.max(version, changeVersion);
        deleteState = state;
        if (isDeleted()) {
            segments.clear();
            epochs.clear();
            highestFromService.clear();
        }
        waits.changed(this::shows);
    }

    /** Takes a change of something that Kafka does not ask for. */
    synchronized void passed(long changeVersion) {
        version = Math.max(version, changeVersion);
    }

    /** Last version received; 0 for none. */
    synchronized long version() {
        return version;
    }

    /** Whether everything that existed when the partition was assigned is here. Never becomes false again. */
    synchronized boolean isReady() {
        return ready;
    }

    /** Notes that everything is here. */
    synchronized void markReady() {
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
        return deleteState == RemotePartitionDeleteState.DELETE_PARTITION_FINISHED;
    }

    /** The finished segment that holds the offset in the epoch. */
    synchronized Optional<RemoteLogSegmentMetadata> find(int epoch, long offset) {
        EpochIndex index = epochs.get(epoch);
        Uuid id = index == null ? null : index.find(offset);
        return Optional.ofNullable(id).map(segments::get);
    }

    /** Every segment that is not gone, by start offset. */
    synchronized List<RemoteLogSegmentMetadata> list() {
        return sorted(new ArrayList<>(segments.values()));
    }

    /** Those of an epoch, by start offset. */
    synchronized List<RemoteLogSegmentMetadata> list(int epoch) {
        List<RemoteLogSegmentMetadata> found = new ArrayList<>();
        for (RemoteLogSegmentMetadata each : segments.values()) {
            if (each.segmentLeaderEpochs().containsKey(epoch)) {
                found.add(each);
            }
        }
        return sorted(found);
    }

    /** Highest offset ever finished in the epoch, -1 for none; empty while the service has not been asked. */
    synchronized Optional<Long> highest(int epoch) {
        long asked = highestFromService.getOrDefault(epoch, NEVER_ASKED);
        if (asked == NEVER_ASKED) {
            return Optional.empty();
        }
        EpochIndex index = epochs.get(epoch);
        return Optional.of(Math.max(asked, index == null ? -1 : index.highest()));
    }

    /** Notes what the service says about deleted segments too; -1 for none. */
    synchronized void rememberHighest(int epoch, long offset) {
        highestFromService.put(epoch, offset);
    }

    /** Number of segments that are not gone. */
    synchronized int size() {
        return segments.size();
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

    /** Whether every listed segment is here in the listed state or a later one. */
    synchronized boolean reaches(Map<Uuid, RemoteLogSegmentState> listed) {
        return isDeleted() || listed.entrySet().stream().allMatch(each -> hasReached(each.getKey(), each.getValue()));
    }

    private boolean shows(VisibilityWaits.Wanted wanted) {
        if (wanted.deleteState() != null) {
            return deleteState != null && deleteState.id() >= wanted.deleteState().id();
        }
        return isDeleted() || hasReached(wanted.segmentId(), wanted.segmentState());
    }

    private boolean hasReached(Uuid id, RemoteLogSegmentState state) {
        RemoteLogSegmentMetadata known = segments.get(id);
        if (known != null) {
            return known.state().id() >= state.id();
        }
        return gone.containsKey(id) || (ready && state == RemoteLogSegmentState.DELETE_SEGMENT_FINISHED);
    }

    private void indexed(RemoteLogSegmentMetadata segment) {
        Uuid id = segment.remoteLogSegmentId().id();
        boolean finished = segment.state() == RemoteLogSegmentState.COPY_SEGMENT_FINISHED;
        segment.segmentLeaderEpochs().forEach((epoch, start) -> {
            EpochIndex index = epochs.computeIfAbsent(epoch, key -> new EpochIndex());
            if (finished) {
                index.add(id, start, endInEpoch(segment, epoch));
            } else {
                index.remove(id);
            }
        });
    }

    private static long endInEpoch(RemoteLogSegmentMetadata segment, int epoch) {
        Map.Entry<Integer, Long> next = segment.segmentLeaderEpochs().higherEntry(epoch);
        return next == null ? segment.endOffset() : next.getValue() - 1;
    }

    private static List<RemoteLogSegmentMetadata> sorted(List<RemoteLogSegmentMetadata> list) {
        list.sort(Comparator.comparingLong(RemoteLogSegmentMetadata::startOffset));
        return list;
    }
}
