package io.aquifer.kafka.storage;

import io.aquifer.kafka.rpc.RpcException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;

/**
 * The bytes of a segment as one stream brings them, with the last ones that were read: its next reader may begin a little before the
 * place where the last one stopped. Not safe for several threads at once.
 */
final class Transfer implements AutoCloseable {
    /** A read ends in the middle of a batch, and the next one begins at the batch or at the entry of the offset index before it. */
    static final int KEPT_BYTES = 1024 * 1024 + 64 * 1024;

    private final PieceStream stream;
    private final long endsNanos;
    private final int keptBytes;
    private final Deque<Piece> before = new ArrayDeque<>();
    private final Deque<Piece> ahead = new ArrayDeque<>();
    private long position;
    private boolean atEnd;

    /**
     * @param first its first piece; null when there is nothing.
     * @param position of the first byte.
     * @param endsNanos when the call's deadline is over, as {@link System#nanoTime}.
     * @param keptBytes how much of what was read is kept.
     */
    Transfer(PieceStream stream, Piece first, long position, long endsNanos, int keptBytes) {
        this.stream = stream;
        this.position = position;
        this.endsNanos = endsNanos;
        this.keptBytes = keptBytes;
        take(first);
    }

    /** Position of the next byte. */
    long position() {
        return position;
    }

    /** Whether nothing is left. */
    boolean isAtEnd() {
        return atEnd && ahead.isEmpty();
    }

    /** Bytes that can be read without waiting. */
    int available() {
        Piece piece = ahead.peekFirst();
        return piece == null ? 0 : (int) (piece.end() - position);
    }

    /** Time until its deadline. */
    long remainingNanos() {
        return endsNanos - System.nanoTime();
    }

    /** Bytes that it holds. */
    long heldBytes() {
        return sum(before) + sum(ahead);
    }

    /** Waits for the next piece; returns its size, 0 at the end. */
    int advance() throws RpcException, InterruptedException {
        return take(stream.next());
    }

    /** Reads what is available, up to a length. */
    int read(byte[] target, int offset, int length) {
        Piece piece = ahead.getFirst();
        int count = Math.min(length, available());
        System.arraycopy(piece.data(), (int) (position - piece.position()), target, offset, count);
        position += count;
        if (position == piece.end()) {
            before.addLast(ahead.removeFirst());
        }
        while (!before.isEmpty() && before.getFirst().end() <= position - keptBytes) {
            before.removeFirst();
        }
        return count;
    }

    /** Whether it can go on at a position: one that it still holds, or the end of what it has brought. */
    boolean reaches(long start) {
        Piece oldest = before.isEmpty() ? ahead.peekFirst() : before.peekFirst();
        Piece newest = ahead.isEmpty() ? before.peekLast() : ahead.peekLast();
        return oldest != null && oldest.position() <= start && start <= newest.end();
    }

    /** Goes to a position that it reaches. */
    void goTo(long start) {
        List<Piece> all = new ArrayList<>(before);
        all.addAll(ahead);
        before.clear();
        ahead.clear();
        for (Piece piece : all) {
            (piece.end() <= start ? before : ahead).addLast(piece);
        }
        position = start;
    }

    @Override
    public void close() {
        stream.close();
        before.clear();
        ahead.clear();
    }

    private int take(Piece piece) {
        if (piece == null) {
            atEnd = true;
            return 0;
        }
        if (piece.data().length > 0) {
            ahead.addLast(piece);
        }
        return piece.data().length;
    }

    private static long sum(Iterable<Piece> pieces) {
        long total = 0;
        for (Iterator<Piece> each = pieces.iterator(); each.hasNext();) {
            total += each.next().data().length;
        }
        return total;
    }
}
