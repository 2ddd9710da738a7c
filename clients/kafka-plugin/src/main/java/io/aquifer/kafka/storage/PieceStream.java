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
import java.util.function.Function;

/**
 * A server stream of pieces. One piece is under way ahead of the reader, besides what fits into the stream's window.
 *
 * @param <A> message of the stream.
 */
final class PieceStream<A> implements AutoCloseable {
    private final BlockingClientCall<?, A> call;
    private final Function<A, Piece> pieceOf;
    private final Duration stall;
    private long position;
    private boolean ended;

    private PieceStream(BlockingClientCall<?, A> call, Function<A, Piece> pieceOf, long position, Duration stall) {
        this.call = call;
        this.pieceOf = pieceOf;
        this.position = position;
        this.stall = stall;
    }

    /** Opens a stream whose first piece begins at a position. */
    static <Q, A> PieceStream<A> open(
            Channel channel, CallOptions options, MethodDescriptor<Q, A> method, Q request,
            Function<A, Piece> pieceOf, long position, Duration stall) {
        return new PieceStream<>(
                ClientCalls.blockingV2ServerStreamingCall(channel, method, options, request), pieceOf, position, stall);
    }

    /** The next piece, checked; null at the end. */
    Piece next() throws RpcException, InterruptedException {
        try {
            A message = call.read(stall.toNanos(), TimeUnit.NANOSECONDS);
            if (message == null) {
                ended = true;
                return null;
            }
            Piece piece = pieceOf.apply(message);
            piece.check(position);
            position += piece.data().size();
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
            call.cancel("closed by the reader", null);
        }
    }
}
