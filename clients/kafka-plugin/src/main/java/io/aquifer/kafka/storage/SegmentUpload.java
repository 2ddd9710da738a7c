package io.aquifer.kafka.storage;

import aquifer.storage.v1.RemoteStorageServiceGrpc;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyChunk;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyFinish;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataResponse;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopySpec;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.PartSpec;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.SegmentPart;
import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.aquifer.kafka.convert.Segments;
import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.zip.CRC32C;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** One attempt to send a segment: spec, indexes, log, finish. Files are read no faster than the service takes them. */
final class SegmentUpload {
    private static final int PIECE_BYTES = 1024 * 1024;

    private final RemoteLogSegmentMetadata metadata;
    private final List<UploadPart> parts;
    private final Duration stall;
    private final Operation operation;
    private BlockingClientCall<CopyLogSegmentDataRequest, CopyLogSegmentDataResponse> call;
    private boolean begun;

    SegmentUpload(RemoteLogSegmentMetadata metadata, LogSegmentData data, Duration stall, Operation operation) throws IOException {
        this.metadata = metadata;
        this.parts = UploadPart.of(data);
        this.stall = stall;
        this.operation = operation;
    }

    /** Whether the service took anything; then the same segment id must not be sent again. */
    boolean hasBegun() {
        return begun;
    }

    /** Sends everything and waits for the answer. Ends the call whatever happens. */
    CopyLogSegmentDataResponse run(Channel channel, CallOptions options) throws RpcException, StatusException, InterruptedException {
        // The next piece is read and checked while this one is on its way.
        CallOptions buffered = options.withOnReadyThreshold(2 * PIECE_BYTES);
        call = ClientCalls.blockingClientStreamingCall(channel, RemoteStorageServiceGrpc.getCopyLogSegmentDataMethod(), buffered);
        boolean done = false;
        try {
            if (sendAll()) {
                call.halfClose();
            }
            CopyLogSegmentDataResponse answer = answer();
            done = true;
            return answer;
        } catch (TimeoutException error) {
            throw RpcException.stalled(stall, error);
        } catch (IOException error) {
            throw Status.FAILED_PRECONDITION.withDescription("a file of the segment could not be read: " + error)
                    .withCause(error).asException();
        } finally {
            if (!done) {
                PieceStream.cancel(call, "the copy was given up");
            }
        }
    }

    /** False when the service has answered before it had everything. */
    private boolean sendAll() throws IOException, InterruptedException, StatusException, TimeoutException {
        CopySpec.Builder spec = CopySpec.newBuilder().setMetadata(Segments.toProto(metadata));
        parts.forEach(part -> spec.addParts(PartSpec.newBuilder().setPart(part.part()).setSizeBytes(part.sizeBytes())));
        if (!send(CopyLogSegmentDataRequest.newBuilder().setSpec(spec).build())) {
            return false;
        }
        begun = true;
        for (UploadPart part : parts) {
            if (!sendPart(part)) {
                return false;
            }
        }
        return send(CopyLogSegmentDataRequest.newBuilder().setFinish(CopyFinish.getDefaultInstance()).build());
    }

    private boolean sendPart(UploadPart part) throws IOException, InterruptedException, StatusException, TimeoutException {
        try (InputStream input = part.open()) {
            long position = 0;
            while (position < part.sizeBytes()) {
                byte[] piece = input.readNBytes((int) Math.min(PIECE_BYTES, part.sizeBytes() - position));
                if (piece.length == 0) {
                    throw new IOException(part.part() + " ended at " + position + " instead of " + part.sizeBytes());
                }
                if (!send(message(part.part(), position, piece))) {
                    return false;
                }
                position += piece.length;
                operation.moved(piece.length);
            }
        }
        return true;
    }

    private boolean send(CopyLogSegmentDataRequest message) throws InterruptedException, StatusException, TimeoutException {
        return call.write(message, stall.toNanos(), TimeUnit.NANOSECONDS);
    }

    private CopyLogSegmentDataResponse answer() throws StatusException, InterruptedException {
        CopyLogSegmentDataResponse answer = call.read();
        if (answer == null) {
            throw Status.INTERNAL.withDescription("the service ended the copy without an answer").asException();
        }
        return answer;
    }

    private static CopyLogSegmentDataRequest message(SegmentPart part, long position, byte[] piece) {
        CRC32C crc = new CRC32C();
        crc.update(piece);
        ByteString data = UnsafeByteOperations.unsafeWrap(piece);
        return CopyLogSegmentDataRequest.newBuilder()
                .setChunk(CopyChunk.newBuilder().setPart(part).setPosition(position).setData(data).setCrc32C((int) crc.getValue()))
                .build();
    }
}
