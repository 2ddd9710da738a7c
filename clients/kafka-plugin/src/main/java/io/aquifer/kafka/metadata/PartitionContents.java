package io.aquifer.kafka.metadata;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/** What one watch, with its renewals, has brought of a partition. Not safe for several threads; its view guards it. */
final class PartitionContents {
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
    private RemotePartitionDeleteState deleteState;
    private long version;

    /** Takes a segment as it is after a change; a step back changes nothing. */
    void apply(RemoteLogSegmentMetadata segment, long changeVersion) {
        passed(changeVersion);
        Uuid id = segment.remoteLogSegmentId().id();
        RemoteLogSegmentMetadata before = segments.get(id);
        if (gone.containsKey(id) || (before != null && before.state().id() > segment.state().id())) {
            return;
        }
        index(segment);
        if (segment.state() == RemoteLogSegmentState.DELETE_SEGMENT_FINISHED) {
            segments.remove(id);
            gone.put(id, Boolean.TRUE);
        } else {
            segments.put(id, segment);
        }
    }

    /** Takes a step of the partition's deletion. */
    void apply(RemotePartitionDeleteState state, long changeVersion) {
        passed(changeVersion);
        deleteState = state;
        if (isDeleted()) {
            segments.clear();
            epochs.clear();
            highestFromService.clear();
        }
    }

    /** Takes the version of a change of something that Kafka does not ask for. */
    void passed(long changeVersion) {
        version = Math.max(version, changeVersion);
    }

    /** Last version received; 0 for none. */
    long version() {
        return version;
    }

    /** Whether the deletion of the partition's remote data has finished. */
    boolean isDeleted() {
        return deleteState == RemotePartitionDeleteState.DELETE_PARTITION_FINISHED;
    }

    /** Whether the partition's deletion is in this state or a later one. */
    boolean hasReached(RemotePartitionDeleteState state) {
        return deleteState != null && deleteState.id() >= state.id();
    }

    /** Whether the segment was seen in this state or a later one. */
    boolean hasReached(Uuid id, RemoteLogSegmentState state) {
        RemoteLogSegmentMetadata known = segments.get(id);
        return known == null ? gone.containsKey(id) : known.state().id() >= state.id();
    }

    /** Whether the segment is not among those that are not gone. */
    boolean lacks(Uuid id) {
        return !segments.containsKey(id);
    }

    /** The finished segment that holds the offset in the epoch. */
    Optional<RemoteLogSegmentMetadata> find(int epoch, long offset) {
        EpochIndex index = epochs.get(epoch);
        Uuid id = index == null ? null : index.find(offset);
        return Optional.ofNullable(id).map(segments::get);
    }

    /** Every segment that is not gone, by start offset. */
    List<RemoteLogSegmentMetadata> list() {
        return sorted(new ArrayList<>(segments.values()));
    }

    /** Those of an epoch, by start offset. */
    List<RemoteLogSegmentMetadata> list(int epoch) {
        List<RemoteLogSegmentMetadata> found = new ArrayList<>();
        for (RemoteLogSegmentMetadata each : segments.values()) {
            if (each.segmentLeaderEpochs().containsKey(epoch)) {
                found.add(each);
            }
        }
        return sorted(found);
    }

    /** Highest offset ever finished in the epoch, -1 for none; empty while the service has not been asked. */
    Optional<Long> highest(int epoch) {
        long asked = highestFromService.getOrDefault(epoch, NEVER_ASKED);
        if (asked == NEVER_ASKED) {
            return Optional.empty();
        }
        EpochIndex index = epochs.get(epoch);
        return Optional.of(Math.max(asked, index == null ? -1 : index.highest()));
    }

    /** Notes what the service says about deleted segments too; -1 for none. */
    void rememberHighest(int epoch, long offset) {
        highestFromService.put(epoch, offset);
    }

    /** Number of segments that are not gone. */
    int size() {
        return segments.size();
    }

    private void index(RemoteLogSegmentMetadata segment) {
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
