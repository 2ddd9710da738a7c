package io.aquifer.kafka.metadata;

import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.AddRemoteLogSegmentMetadataRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.PutRemotePartitionDeleteMetadataRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.UpdateRemoteLogSegmentMetadataRequest;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.convert.StorageErrors;
import io.aquifer.kafka.rpc.Caller;
import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import io.aquifer.kafka.telemetry.Telemetry;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** Writes metadata; a future is complete when the service has it and this broker's own view shows it. */
final class MetadataWrites implements AutoCloseable {
    private static final String CLOSED = "the metadata manager is closed";

    /** One call of the service. */
    @FunctionalInterface
    private interface Write {
        void run(Operation operation) throws RpcException;
    }

    /** A write that waits for its turn, then runs; its future is completed either way. */
    private record Turn(Runnable call, CompletableFuture<Void> written) implements Runnable {
        @Override
        public void run() {
            call.run();
        }
    }

    private final Caller caller;
    private final PartitionViews views;
    private final ExecutorService executor;
    private final Telemetry telemetry;
    private final long visibleWaitMs;

    MetadataWrites(Caller caller, PartitionViews views, ExecutorService executor, Telemetry telemetry, Settings settings) {
        this.caller = caller;
        this.views = views;
        this.executor = executor;
        this.telemetry = telemetry;
        this.visibleWaitMs = settings.number(Property.VISIBLE_WAIT_MS);
    }

    CompletableFuture<Void> add(RemoteLogSegmentMetadata metadata) {
        var request = AddRemoteLogSegmentMetadataRequest.newBuilder().setMetadata(Segments.toProto(metadata)).build();
        var wanted = VisibilityWaits.Wanted.segment(metadata.remoteLogSegmentId().id(), metadata.state());
        return write("addMetadata", metadata.topicIdPartition(), metadata.remoteLogSegmentId().toString(), wanted, operation ->
                caller.unary(operation, null, RemoteLogMetadataServiceGrpc.getAddRemoteLogSegmentMetadataMethod(), request));
    }

    CompletableFuture<Void> update(RemoteLogSegmentMetadataUpdate update) {
        var request = UpdateRemoteLogSegmentMetadataRequest.newBuilder().setUpdate(Segments.toProto(update)).build();
        var wanted = VisibilityWaits.Wanted.segment(update.remoteLogSegmentId().id(), update.state());
        return write("updateMetadata", update.topicIdPartition(), update.remoteLogSegmentId().toString(), wanted, operation ->
                caller.unary(operation, null, RemoteLogMetadataServiceGrpc.getUpdateRemoteLogSegmentMetadataMethod(), request));
    }

    CompletableFuture<Void> delete(RemotePartitionDeleteMetadata deletion) {
        var request = PutRemotePartitionDeleteMetadataRequest.newBuilder()
                .setTopicIdPartition(Segments.toProto(deletion.topicIdPartition()))
                .setState(Segments.toProto(deletion.state()))
                .setEventTimestampMs(deletion.eventTimestampMs())
                .setBrokerId(deletion.brokerId())
                .build();
        var wanted = VisibilityWaits.Wanted.deletion(deletion.state());
        return write("deletePartition", deletion.topicIdPartition(), deletion.topicIdPartition().toString(), wanted, operation ->
                caller.unary(operation, null, RemoteLogMetadataServiceGrpc.getPutRemotePartitionDeleteMetadataMethod(), request));
    }

    /** Ends the writes under way and fails those that have not begun. */
    @Override
    public void close() {
        for (Runnable waiting : executor.shutdownNow()) {
            if (waiting instanceof Turn turn) {
                turn.written().completeExceptionally(new RemoteStorageException(CLOSED));
            }
        }
    }

    private CompletableFuture<Void> write(
            String name, TopicIdPartition partition, String subject, VisibilityWaits.Wanted wanted, Write call) {
        PartitionView view = views.view(partition).orElse(null);
        if (view == null) {
            return CompletableFuture.failedFuture(new RemoteStorageException(partition + " is not assigned to this broker"));
        }
        CompletableFuture<Void> written = new CompletableFuture<>();
        try {
            executor.execute(new Turn(() -> run(name, subject, call, written), written));
        } catch (RejectedExecutionException error) {
            return CompletableFuture.failedFuture(new RemoteStorageException(CLOSED));
        }
        return written
                .thenCompose(nothing -> shown(view, partition, wanted))
                .exceptionallyCompose(error -> CompletableFuture.failedFuture(readable(name, subject, error)));
    }

    private void run(String name, String subject, Write call, CompletableFuture<Void> written) {
        try (Operation operation = telemetry.begin(name, subject)) {
            try {
                call.run(operation);
                written.complete(null);
            } catch (RpcException | RuntimeException error) {
                written.completeExceptionally(operation.failed(error));
            }
        }
    }

    private CompletableFuture<Void> shown(PartitionView view, TopicIdPartition partition, VisibilityWaits.Wanted wanted) {
        view.await(wanted);
        if (views.view(partition).orElse(null) != view) {
            view.stop(partition + " is no longer assigned to this broker");
        }
        return wanted.future().orTimeout(visibleWaitMs, TimeUnit.MILLISECONDS);
    }

    private RemoteStorageException readable(String name, String subject, Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        if (cause instanceof TimeoutException) {
            return new RemoteStorageException(name + " of " + subject + " did not show in this broker's view within "
                    + visibleWaitMs + " ms; it may have happened");
        }
        return StorageErrors.of(name + " of " + subject, cause);
    }
}
