package io.aquifer.kafka.metadata;

import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.WatchPartitionRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.WatchPartitionResponse;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.rpc.RpcException;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import org.apache.kafka.common.TopicIdPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps one partition's view fresh: a stream of changes that is opened again, at another endpoint when there is one, from the last
 * version received. When the service no longer keeps changes that far back, everything is loaded anew.
 */
final class PartitionWatch {
    private static final Logger LOG = LoggerFactory.getLogger(PartitionWatch.class);

    private final TopicIdPartition partition;
    private final PartitionView view;
    private final WatchConnections connections;
    private final Runnable reload;
    private Stream current;
    private int failures;
    private boolean closed;

    /**
     * @param reload opens this watch and begins a load of the view; returns at once.
     */
    PartitionWatch(TopicIdPartition partition, PartitionView view, WatchConnections connections, Runnable reload) {
        this.partition = partition;
        this.view = view;
        this.connections = connections;
        this.reload = reload;
    }

    /** Opens the stream; returns at once. */
    synchronized void open() {
        if (closed) {
            return;
        }
        WatchPartitionRequest request = WatchPartitionRequest.newBuilder()
                .setTopicIdPartition(Segments.toProto(partition))
                .setFromVersion(view.version())
                .build();
        WatchConnections.Target target = connections.next();
        current = new Stream(target);
        target.stub().watchPartition(request, current);
    }

    /** Ends the stream for good. */
    synchronized void close() {
        closed = true;
        if (current != null) {
            current.cancel();
        }
    }

    private void received(WatchPartitionResponse change) {
        if (change.hasSegment()) {
            view.apply(Segments.fromProto(change.getSegment()), change.getVersion());
        } else if (change.hasDeleteState()) {
            view.apply(Segments.fromProto(change.getDeleteState()), change.getVersion());
        } else {
            view.passed(change.getVersion());
        }
    }

    private synchronized void ended(Stream stream, Throwable error) {
        if (closed || stream != current) {
            return;
        }
        if (error != null && Status.fromThrowable(error).getCode() == Status.Code.DEADLINE_EXCEEDED) {
            failures = 0;
            connections.later(this::open, 0);
            return;
        }
        if (error != null && Status.fromThrowable(error).getCode() == Status.Code.OUT_OF_RANGE && view.version() > 0) {
            LOG.warn("Changes of {} after version {} have left the history at {}; all is loaded anew",
                    partition, view.version(), stream.target);
            failures = 0;
            view.beginAgain();
            reload.run();
            return;
        }
        failures = stream.moved ? 1 : failures + 1;
        if (error != null) {
            RpcException failure = RpcException.of(error);
            stream.target.failed(failure);
            String text = "The watch of {} at {} broke and is opened again: {}";
            if (failure.isEndpointDown()) {
                LOG.debug(text, partition, stream.target, failure.getMessage());
            } else {
                LOG.warn(text, partition, stream.target, failure.getMessage(), failure);
            }
        }
        connections.later(this::open, connections.backoffMs(failures));
    }

    /** One life of the watch. */
    private final class Stream implements ClientResponseObserver<WatchPartitionRequest, WatchPartitionResponse> {
        private final WatchConnections.Target target;
        private volatile ClientCallStreamObserver<WatchPartitionRequest> call;
        private volatile boolean moved;

        Stream(WatchConnections.Target target) {
            this.target = target;
        }

        @Override
        public void beforeStart(ClientCallStreamObserver<WatchPartitionRequest> started) {
            call = started;
        }

        @Override
        public void onNext(WatchPartitionResponse change) {
            target.answered();
            received(change);
            // One that is not understood fails the stream, and asking for it again at once would not help.
            moved = true;
        }

        @Override
        public void onError(Throwable error) {
            ended(this, error);
        }

        @Override
        public void onCompleted() {
            ended(this, null);
        }

        private void cancel() {
            if (call != null) {
                call.cancel("the partition is no longer watched", null);
            }
        }
    }
}
