package io.aquifer.kafka.storage;

import com.google.protobuf.ByteString;
import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Objects;

/**
 * The bytes of a segment from a position on, fetched as they are read. Closing it ends the transfer.
 *
 * <p>A transfer that breaks goes on from where it broke, at another endpoint when there is one. Not safe for several threads at once,
 * but {@link #close} may come from another one between two reads.
 */
final class SegmentInputStream extends InputStream {
    /** Opens the transfer again. */
    @FunctionalInterface
    interface Source {
        /**
         * Opens at a position and reads the first piece.
         *
         * @throws RpcException what it finally failed with, retries included.
         */
        Opened open(long position) throws RpcException;
    }

    /**
     * An open transfer with its first piece.
     *
     * @param stream the rest.
     * @param first null when there is nothing.
     */
    record Opened(PieceStream<?> stream, Piece first) {
    }

    private static final int MOST_RESUMES_WITHOUT_PROGRESS = 3;

    private final Source source;
    private final Operation operation;
    private PieceStream<?> stream;
    private ByteString current;
    private int taken;
    private long position;
    private int resumes;
    private boolean atEnd;
    private boolean closed;

    /** Opens at once, so that a segment that is not there is known here. */
    SegmentInputStream(Source source, Operation operation, long position) throws RpcException {
        this.source = source;
        this.operation = operation;
        this.position = position;
        Opened opened = source.open(position);
        this.stream = opened.stream();
        take(opened.first());
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
        Objects.checkFromIndexSize(offset, length, target.length);
        if (closed) {
            throw new IOException("the stream is closed");
        }
        if (length == 0) {
            return 0;
        }
        while (!atEnd && taken == current.size()) {
            advance();
        }
        if (atEnd) {
            return -1;
        }
        int count = Math.min(length, current.size() - taken);
        current.copyTo(target, taken, offset, count);
        taken += count;
        position += count;
        return count;
    }

    /** Bytes that can be read without waiting. */
    @Override
    public int available() {
        return closed || atEnd ? 0 : current.size() - taken;
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            current = ByteString.EMPTY;
            stream.close();
            operation.close();
        }
    }

    private void advance() throws IOException {
        try {
            take(stream.next());
            resumes = 0;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw failed(new InterruptedIOException("interrupted while reading at position " + position));
        } catch (RpcException failure) {
            resume(failure);
        }
    }

    private void resume(RpcException failure) throws IOException {
        stream.close();
        if (!failure.isEndpointDown() || ++resumes > MOST_RESUMES_WITHOUT_PROGRESS) {
            throw failed(new IOException("reading at position " + position + " failed: " + failure.getMessage(), failure));
        }
        operation.retrying(failure.reason(), resumes, Duration.ZERO);
        try {
            Opened opened = source.open(position);
            stream = opened.stream();
            take(opened.first());
        } catch (RpcException error) {
            throw failed(new IOException("reading again at position " + position + " failed: " + error.getMessage(), error));
        }
    }

    private void take(Piece piece) {
        atEnd = piece == null;
        current = atEnd ? ByteString.EMPTY : piece.data();
        taken = 0;
        operation.moved(current.size());
    }

    private IOException failed(IOException error) {
        stream.close();
        return operation.failed(error);
    }
}
