package io.aquifer.kafka.metadata;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.rpc.Endpoints;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.kafka.common.TopicIdPartition;

/** The partitions that this broker leads or follows, each with its view and the watch that keeps it fresh. */
final class PartitionViews {
    private record Watched(PartitionView view, PartitionWatch watch) {
    }

    private final Map<TopicIdPartition, Watched> all = new ConcurrentHashMap<>();
    private final WatchConnections connections;
    private final LoadQueue loads;

    PartitionViews(Endpoints endpoints, ScheduledExecutorService scheduler, Settings settings) {
        connections = new WatchConnections(endpoints, scheduler, settings);
        loads = new LoadQueue(settings.number(Property.LOADS_AT_ONCE));
    }

    /** Begins to watch what is not watched yet; returns at once. */
    void assign(Set<TopicIdPartition> partitions) {
        for (TopicIdPartition partition : partitions) {
            PartitionView view = new PartitionView();
            PartitionWatch watch = new PartitionWatch(partition, view, connections, () -> begin(partition, view));
            if (all.putIfAbsent(partition, new Watched(view, watch)) == null) {
                begin(partition, view);
            }
        }
    }

    /** Forgets partitions; returns at once. */
    void stop(Set<TopicIdPartition> partitions) {
        for (TopicIdPartition partition : partitions) {
            Watched removed = all.remove(partition);
            if (removed != null) {
                removed.watch().close();
                removed.view().stop(partition + " is no longer assigned to this broker");
            }
        }
    }

    /** Forgets all partitions. */
    void close() {
        stop(Set.copyOf(all.keySet()));
    }

    /** The view of an assigned partition. */
    Optional<PartitionView> view(TopicIdPartition partition) {
        return Optional.ofNullable(all.get(partition)).map(Watched::view);
    }

    /** Number of partitions. */
    long count() {
        return all.size();
    }

    /** Number of partitions that can be asked. */
    long readyCount() {
        return all.values().stream().filter(each -> each.view().isReady()).count();
    }

    /** Number of segments of all partitions. */
    long segmentCount() {
        return all.values().stream().mapToLong(each -> each.view().size()).sum();
    }

    private void begin(TopicIdPartition partition, PartitionView view) {
        Watched watched = all.get(partition);
        if (watched != null && watched.view() == view) {
            connections.later(() -> loads.submit(() -> load(partition, watched)), 0);
        }
    }

    private void load(TopicIdPartition partition, Watched watched) {
        PartitionLoad load = new PartitionLoad(
                partition, watched.view(), connections, () -> all.get(partition) == watched, loads);
        watched.watch().open();
        load.start();
    }
}
