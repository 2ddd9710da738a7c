package io.aquifer.kafka.storage;

import io.aquifer.kafka.rpc.RpcException;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.MethodDescriptor;
import io.grpc.StatusException;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A server stream of pieces. One piece is under way ahead of the reader, besides what fits into the stream's window. */
final class PieceStream implements AutoCloseable {
    private static final long LET_GO_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final BlockingClientCall<?, Piece> call;
    private final Duration stall;
    private long position;
    private boolean ended;

    private PieceStream(BlockingClientCall<?, Piece> call, long position, Duration stall) {
        this.call = call;
        this.position = position;
        this.stall = stall;
    }

    /** Opens a stream whose first piece begins at a position. */
    static <Q> PieceStream open(
            Channel channel, CallOptions options, MethodDescriptor<Q, Piece> method, Q request, long position, Duration stall) {
        return new PieceStream(ClientCalls.blockingV2ServerStreamingCall(channel, method, options, request), position, stall);
    }

    /** The next piece, checked; null at the end. */
    Piece next() throws RpcException, InterruptedException {
        if (ended) {
            return null;
        }
        try {
            Piece piece = call.read(stall.toNanos(), TimeUnit.NANOSECONDS);
            if (piece == null) {
                ended = true;
                return null;
            }
            piece.check(position);
            position = piece.end();
            return piece;
        } catch (TimeoutException error) {
            throw RpcException.stalled(stall, error);
        } catch (StatusException error) {
            ended = true;
            throw RpcException.of(error);
        }
    }

    /** Ends the transfer; what is under way is thrown away. */
    @Override
    public void close() {
        if (!ended) {
            ended = true;
            cancel(call, "closed by the reader");
        }
    }

    /** Ends a call and takes what has arrived meanwhile: messages that nobody takes keep direct memory for ever. */
    static void cancel(BlockingClientCall<?, ?> call, String reason) {
        call.cancel(reason, null);
        boolean interrupted = Thread.interrupted();
        long ends = System.nanoTime() + LET_GO_NANOS;
        for (boolean isOver = false; !isOver;) {
            try {
                isOver = call.read(Math.max(1, ends - System.nanoTime()), TimeUnit.NANOSECONDS) == null;
            } catch (StatusException | TimeoutException error) {
                isOver = true;
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
