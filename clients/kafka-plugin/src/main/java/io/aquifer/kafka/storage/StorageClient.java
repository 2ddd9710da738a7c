package io.aquifer.kafka.storage;

import aquifer.storage.v1.RemoteStorageServiceGrpc;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataResponse;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.DeleteLogSegmentDataRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchIndexRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchLogSegmentRequest;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.rpc.Caller;
import io.aquifer.kafka.rpc.Endpoints;
import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import io.aquifer.kafka.telemetry.Telemetry;
import io.grpc.MethodDescriptor;
import io.grpc.StatusException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * The calls of the storage service. Every call of one segment goes to the same endpoint while that answers, so that caches of replicas
 * do not overlap. Safe for any number of threads.
 */
public final class StorageClient implements AutoCloseable {
    private static final int PIECE_BYTES = 1024 * 1024;
    private static final MethodDescriptor<FetchLogSegmentRequest, Piece> FETCH_LOG_SEGMENT =
            PieceMarshaller.piecesOf(RemoteStorageServiceGrpc.getFetchLogSegmentMethod());
    private static final MethodDescriptor<FetchIndexRequest, Piece> FETCH_INDEX =
            PieceMarshaller.piecesOf(RemoteStorageServiceGrpc.getFetchIndexMethod());

    private final Endpoints endpoints;
    private final Caller caller;
    private final KeptTransfers kept;
    private final Duration copyDeadline;
    private final Duration fetchDeadline;
    private final Duration stall;

    /** A client; nothing is connected before the first call. */
    public StorageClient(Settings settings) {
        endpoints = Endpoints.open(settings);
        caller = new Caller(endpoints, settings);
        copyDeadline = settings.duration(Property.COPY_DEADLINE_MS);
        fetchDeadline = settings.duration(Property.FETCH_DEADLINE_MS);
        stall = settings.duration(Property.STALL_MS);
        kept = new KeptTransfers(
                settings.duration(Property.FETCH_KEEP_MS),
                settings.number(Property.FETCH_KEEP_BYTES),
                settings.number(Property.FETCH_WINDOW_BYTES) + PIECE_BYTES,
                fetchDeadline.dividedBy(2));
    }

    /** Copies a segment. Repeated only while the service has taken nothing: a second copy of one id could meet the clean-up of the first. */
    public CopyLogSegmentDataResponse copy(Operation operation, RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RpcException, IOException {
        SegmentUpload upload = new SegmentUpload(metadata, data, stall, operation);
        return caller.call(operation, affinity(metadata), copyDeadline, (channel, options) -> {
            try {
                return upload.run(channel, options);
            } catch (RpcException | StatusException error) {
                RpcException failure = RpcException.of(error);
                throw upload.hasBegun() && !failure.isRefusal() ? failure.unrepeatable() : failure;
            }
        });
    }

    /**
     * Opens the bytes from a position on; the operation ends when the stream is closed. A transfer that an earlier read has left there
     * goes on.
     */
    public InputStream fetch(Operation operation, RemoteLogSegmentMetadata metadata, long start, Long endInclusive) throws RpcException {
        var range = new KeptTransfers.Range(metadata.remoteLogSegmentId().id(), endInclusive);
        SegmentInputStream.Source source = position -> open(operation, metadata, position, endInclusive);
        Transfer left = kept.take(range, start);
        return left != null
                ? SegmentInputStream.goOn(source, transfer -> kept.keep(range, transfer), operation, left)
                : SegmentInputStream.open(source, transfer -> kept.keep(range, transfer), operation, start);
    }

    /** Shows streams that wait and were continued, and reads of TLS files. */
    public void showIn(Telemetry telemetry) {
        telemetry.gauge("FetchesKept", "fetches.kept", kept::count);
        telemetry.gauge("FetchesContinued", "fetches.continued", kept::continued);
        endpoints.showIn(telemetry);
    }

    /** Reads a whole index. */
    public byte[] fetchIndex(Operation operation, RemoteLogSegmentMetadata metadata, IndexType type) throws RpcException {
        FetchIndexRequest request = FetchIndexRequest.newBuilder()
                .setMetadata(Segments.toProto(metadata)).setIndexType(Segments.toProto(type)).build();
        return caller.call(operation, affinity(metadata), fetchDeadline, (channel, options) -> {
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            try (var stream = PieceStream.open(channel, options, FETCH_INDEX, request, 0, stall)) {
                for (Piece piece = stream.next(); piece != null; piece = stream.next()) {
                    all.writeBytes(piece.data());
                    operation.moved(piece.data().length);
                }
            }
            return all.toByteArray();
        });
    }

    /** Deletes a segment with its indexes; already gone is success. */
    public void delete(Operation operation, RemoteLogSegmentMetadata metadata) throws RpcException {
        kept.drop(metadata.remoteLogSegmentId().id());
        DeleteLogSegmentDataRequest request = DeleteLogSegmentDataRequest.newBuilder().setMetadata(Segments.toProto(metadata)).build();
        try {
            caller.unary(operation, affinity(metadata), RemoteStorageServiceGrpc.getDeleteLogSegmentDataMethod(), request);
        } catch (RpcException error) {
            if (!error.isNotFound()) {
                throw error;
            }
        }
    }

    @Override
    public void close() {
        kept.close();
        endpoints.close();
    }

    private Transfer open(Operation operation, RemoteLogSegmentMetadata metadata, long position, Long endInclusive) throws RpcException {
        FetchLogSegmentRequest.Builder request = FetchLogSegmentRequest.newBuilder()
                .setMetadata(Segments.toProto(metadata)).setStartPosition(position);
        if (endInclusive != null) {
            request.setEndPosition(endInclusive);
        }
        long endsNanos = System.nanoTime() + fetchDeadline.toNanos();
        return caller.call(operation, affinity(metadata), fetchDeadline, (channel, options) -> {
            PieceStream stream = PieceStream.open(channel, options, FETCH_LOG_SEGMENT, request.build(), position, stall);
            boolean opened = false;
            try {
                Transfer transfer = new Transfer(stream, stream.next(), position, endsNanos, kept.keptBytes());
                opened = true;
                return transfer;
            } finally {
                if (!opened) {
                    stream.close();
                }
            }
        });
    }

    private static String affinity(RemoteLogSegmentMetadata metadata) {
        return metadata.remoteLogSegmentId().id().toString();
    }
}
