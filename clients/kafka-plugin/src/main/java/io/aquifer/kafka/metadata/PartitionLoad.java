package io.aquifer.kafka.metadata;

import aquifer.common.v1.Segment;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.ListRemoteLogSegmentsRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.ListRemoteLogSegmentsResponse;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.rpc.RpcException;
import io.grpc.stub.StreamObserver;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds out when the watch has brought everything that exists: a listing is taken after the watch was opened, and the view is ready
 * when it has all of it. The watch itself does not say where the present ends and news begin.
 */
final class PartitionLoad {
    private static final Logger LOG = LoggerFactory.getLogger(PartitionLoad.class);
    private static final long CHECK_MS = 20;
    private static final int CHECKS_BEFORE_NEW_LISTING = 100;

    private final TopicIdPartition partition;
    private final PartitionView view;
    private final WatchConnections connections;
    private final BooleanSupplier isWanted;
    private final LoadQueue queue;
    private final int number;
    private int failures;

    /**
     * @param isWanted false when the partition was stopped meanwhile.
     * @param queue in which it has its turn, until the view is ready or no longer wanted.
     */
    PartitionLoad(
            TopicIdPartition partition, PartitionView view, WatchConnections connections, BooleanSupplier isWanted, LoadQueue queue) {
        this.partition = partition;
        this.view = view;
        this.connections = connections;
        this.isWanted = isWanted;
        this.queue = queue;
        this.number = view.load();
    }

    /** Takes a listing; returns at once. */
    void start() {
        if (isOver()) {
            queue.finished();
            return;
        }
        WatchConnections.Target target = connections.nextForListing();
        ListRemoteLogSegmentsRequest request = ListRemoteLogSegmentsRequest.newBuilder()
                .setTopicIdPartition(Segments.toProto(partition)).build();
        target.stub().listRemoteLogSegments(request, new Listing(target));
    }

    /** Whether the partition was stopped, or the watch began again, which has a load of its own. */
    private boolean isOver() {
        return !isWanted.getAsBoolean() || view.load() != number;
    }

    private void check(Map<Uuid, RemoteLogSegmentState> listed, int checksLeft) {
        if (isOver()) {
            queue.finished();
        } else if (view.reaches(listed)) {
            view.markReady(number);
            LOG.debug("The view of {} is ready with {} segments", partition, view.size());
            queue.finished();
        } else if (checksLeft == 0) {
            // Something was deleted between watch and listing: a new listing does not have it.
            anotherTurn(0);
        } else {
            connections.later(() -> check(listed, checksLeft - 1), CHECK_MS);
        }
    }

    /** Lets others go first: what is wrong may concern this partition only. */
    private void anotherTurn(long afterMs) {
        queue.finished();
        connections.later(() -> queue.submit(this::start), afterMs);
    }

    private final class Listing implements StreamObserver<ListRemoteLogSegmentsResponse> {
        private final WatchConnections.Target target;
        private final Map<Uuid, RemoteLogSegmentState> listed = new HashMap<>();

        Listing(WatchConnections.Target target) {
            this.target = target;
        }

        @Override
        public void onNext(ListRemoteLogSegmentsResponse page) {
            for (Segment.RemoteLogSegmentMetadata each : page.getSegmentsList()) {
                listed.put(Uuid.fromString(each.getSegmentId().getId()), Segments.fromProto(each.getState()));
            }
        }

        @Override
        public void onError(Throwable error) {
            RpcException failure = RpcException.of(error);
            target.failed(failure);
            failures++;
            if (failures == 1 && !failure.isEndpointDown()) {
                LOG.warn("Loading {} from {} failed and is tried again until it succeeds: {}", partition, target, failure.getMessage());
            }
            if (failure.isEndpointDown()) {
                // Nobody else would get further.
                connections.later(PartitionLoad.this::start, connections.backoffMs(failures));
            } else {
                anotherTurn(connections.backoffMs(failures));
            }
        }

        @Override
        public void onCompleted() {
            target.answered();
            failures = 0;
            check(listed, CHECKS_BEFORE_NEW_LISTING);
        }
    }
}
