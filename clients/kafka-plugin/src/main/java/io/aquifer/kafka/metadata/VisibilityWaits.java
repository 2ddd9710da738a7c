package io.aquifer.kafka.metadata;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** Writes that the service has answered and that do not show in the view yet. Guarded by the view's lock. */
final class VisibilityWaits {
    /**
     * What a write waits for: a segment in a state or a later one, or a state of the partition's deletion.
     *
     * @param future completed when it shows.
     */
    record Wanted(
            Uuid segmentId, RemoteLogSegmentState segmentState, RemotePartitionDeleteState deleteState, CompletableFuture<Void> future) {

        static Wanted segment(Uuid id, RemoteLogSegmentState state) {
            return new Wanted(id, state, null, new CompletableFuture<>());
        }

        static Wanted deletion(RemotePartitionDeleteState state) {
            return new Wanted(null, null, state, new CompletableFuture<>());
        }
    }

    private final List<Wanted> waiting = new ArrayList<>();

    void add(Wanted wanted) {
        waiting.add(wanted);
    }

    /** Completes what shows now; forgets what others completed. */
    void changed(Predicate<Wanted> shows) {
        waiting.removeIf(each -> {
            if (shows.test(each)) {
                each.future().complete(null);
            }
            return each.future().isDone();
        });
    }

    /** Fails everything that waits. */
    void fail(String message) {
        waiting.forEach(each -> each.future().completeExceptionally(new RemoteStorageException(message)));
        waiting.clear();
    }
}
