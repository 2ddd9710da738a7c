package io.aquifer.kafka.metadata;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;

/**
 * The finished segments of one leader epoch, for look-ups by offset.
 *
 * <p>A segment covers another one when it holds all its offsets and more, or the same and was finished later. Those that nothing
 * covers answer look-ups; their starts and ends both rise, so the one that begins last at or before an offset also reaches furthest.
 * What is covered answers again when the covering one is deleted. Not safe for several threads.
 */
final class EpochIndex {
    /**
     * Offsets of a segment inside the epoch, both inclusive.
     *
     * @param order of finishing; later is larger.
     */
    private record Range(Uuid id, long start, long end, long order) {
        boolean covers(Range other) {
            boolean holds = start <= other.start && end >= other.end;
            boolean same = start == other.start && end == other.end;
            return holds && (!same || order > other.order);
        }
    }

    private final NavigableMap<Long, Range> answering = new TreeMap<>();
    private final Map<Uuid, Range> finished = new LinkedHashMap<>();
    private final Map<Uuid, Range> covered = new LinkedHashMap<>();
    private long highest = -1;
    private long nextOrder;

    /** Adds a finished segment; one that is there already changes nothing. */
    void add(Uuid id, long start, long end) {
        highest = Math.max(highest, end);
        if (!finished.containsKey(id)) {
            Range range = new Range(id, start, end, nextOrder++);
            finished.put(id, range);
            insert(range);
        }
    }

    /** Removes a segment that is no longer finished; unknown ones change nothing. */
    void remove(Uuid id) {
        Range range = finished.remove(id);
        if (range == null) {
            return;
        }
        if (covered.remove(id) == null) {
            answering.remove(range.start());
            List<Range> waiting = new ArrayList<>(covered.values());
            waiting.sort(Comparator.comparingLong(Range::order));
            covered.clear();
            waiting.forEach(this::insert);
        }
    }

    /** The segment that holds the offset; null when there is none. */
    Uuid find(long offset) {
        Map.Entry<Long, Range> entry = answering.floorEntry(offset);
        return entry == null || entry.getValue().end() < offset ? null : entry.getValue().id();
    }

    /** Highest offset ever finished here, as far as was seen; -1 for none. Never decreases. */
    long highest() {
        return highest;
    }

    private void insert(Range range) {
        Map.Entry<Long, Range> before = answering.floorEntry(range.start());
        if (before != null && before.getValue().covers(range)) {
            covered.put(range.id(), range);
            return;
        }
        var inside = answering.subMap(range.start(), true, range.end(), true).values().iterator();
        while (inside.hasNext()) {
            Range other = inside.next();
            if (range.covers(other)) {
                inside.remove();
                covered.put(other.id(), other);
            }
        }
        answering.put(range.start(), range);
    }
}
