package io.aquifer.kafka.storage;

import io.aquifer.kafka.rpc.RpcException;
import io.aquifer.kafka.telemetry.Operation;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * The bytes of a segment from a position on, fetched as they are read. Closing it before the end hands the transfer back.
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
        Transfer open(long position) throws RpcException;
    }

    private static final int MOST_RESUMES_WITHOUT_PROGRESS = 3;

    private final Source source;
    private final Consumer<Transfer> unfinished;
    private final Operation operation;
    private Transfer transfer;
    private boolean isOwn;
    private int resumes;
    private boolean failed;
    private boolean closed;

    private SegmentInputStream(Source source, Consumer<Transfer> unfinished, Operation operation, Transfer transfer, boolean isOwn) {
        this.source = source;
        this.unfinished = unfinished;
        this.operation = operation;
        this.transfer = transfer;
        this.isOwn = isOwn;
    }

    /**
     * Opens at once, so that a segment that is not there is known here.
     *
     * @param unfinished takes the transfer when this is closed before its end.
     */
    static SegmentInputStream open(Source source, Consumer<Transfer> unfinished, Operation operation, long position) throws RpcException {
        Transfer opened = source.open(position);
        operation.moved(opened.available());
        return new SegmentInputStream(source, unfinished, operation, opened, true);
    }

    /** Goes on with a transfer that an earlier reader has left. */
    static SegmentInputStream goOn(Source source, Consumer<Transfer> unfinished, Operation operation, Transfer transfer) {
        operation.continuing();
        return new SegmentInputStream(source, unfinished, operation, transfer, false);
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
        if (failed) {
            throw new IOException("the stream has failed before");
        }
        if (length == 0) {
            return 0;
        }
        while (transfer.available() == 0 && !transfer.isAtEnd()) {
            advance();
        }
        return transfer.isAtEnd() ? -1 : transfer.read(target, offset, length);
    }

    /** Bytes that can be read without waiting. */
    @Override
    public int available() {
        return closed ? 0 : transfer.available();
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (failed) {
            transfer.close();
        } else {
            unfinished.accept(transfer);
        }
        operation.close();
    }

    private void advance() throws IOException {
        try {
            operation.moved(transfer.advance());
            resumes = 0;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw failed(new InterruptedIOException("interrupted while reading at position " + transfer.position()));
        } catch (RpcException failure) {
            resume(failure);
        }
    }

    private void resume(RpcException failure) throws IOException {
        long position = transfer.position();
        transfer.close();
        // What another read has opened may have failed while nobody read it.
        boolean repeatable = failure.isEndpointDown() || !isOwn;
        if (!repeatable || ++resumes > MOST_RESUMES_WITHOUT_PROGRESS) {
            throw failed(new IOException("reading at position " + position + " failed: " + failure.getMessage(), failure));
        }
        operation.retrying(failure.reason(), resumes, Duration.ZERO);
        isOwn = true;
        try {
            transfer = source.open(position);
            operation.moved(transfer.available());
        } catch (RpcException error) {
            throw failed(new IOException("reading again at position " + position + " failed: " + error.getMessage(), error));
        }
    }

    private IOException failed(IOException error) {
        failed = true;
        transfer.close();
        return operation.failed(error);
    }
}
