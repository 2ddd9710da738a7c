package io.aquifer.kafka.storage;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;

/**
 * Reads messages of byte streams ({@code position = 1}, {@code data = 2}, {@code crc32c = 3}) into arrays of exactly the size of the
 * data. What protobuf's own parser would do copies all bytes once more.
 */
final class PieceMarshaller implements MethodDescriptor.Marshaller<Piece> {
    private static final int POSITION = 1 << 3 | WireFormat.WIRETYPE_VARINT;
    private static final int DATA = 2 << 3 | WireFormat.WIRETYPE_LENGTH_DELIMITED;
    private static final int CRC32C = 3 << 3 | WireFormat.WIRETYPE_FIXED32;
    private static final int MOST_BYTES = 4 * 1024 * 1024;
    private static final int FIXED32_BYTES = 4;
    private static final int FIXED64_BYTES = 8;

    /** The same method with pieces for answers. */
    static <Q> MethodDescriptor<Q, Piece> piecesOf(MethodDescriptor<Q, ?> method) {
        return method.toBuilder(method.getRequestMarshaller(), new PieceMarshaller()).build();
    }

    @Override
    public InputStream stream(Piece value) {
        throw new UnsupportedOperationException("pieces are received, never sent");
    }

    @Override
    public Piece parse(InputStream input) {
        try {
            return read(input);
        } catch (IOException error) {
            throw Status.INTERNAL.withDescription("a message of a byte stream cannot be read").withCause(error).asRuntimeException();
        }
    }

    private static Piece read(InputStream input) throws IOException {
        long position = 0;
        byte[] data = new byte[0];
        int crc32c = 0;
        for (int first = input.read(); first >= 0; first = input.read()) {
            int tag = CodedInputStream.readRawVarint32(first, input);
            switch (tag) {
                case POSITION -> position = varint(input);
                case DATA -> data = bytes(input, (int) varint(input));
                case CRC32C -> crc32c = fixed32(input);
                default -> skip(input, WireFormat.getTagWireType(tag));
            }
        }
        return new Piece(position, data, crc32c);
    }

    private static void skip(InputStream input, int wireType) throws IOException {
        switch (wireType) {
            case WireFormat.WIRETYPE_VARINT -> varint(input);
            case WireFormat.WIRETYPE_FIXED32 -> bytes(input, FIXED32_BYTES);
            case WireFormat.WIRETYPE_FIXED64 -> bytes(input, FIXED64_BYTES);
            case WireFormat.WIRETYPE_LENGTH_DELIMITED -> bytes(input, (int) varint(input));
            default -> throw new IOException("wire type " + wireType);
        }
    }

    private static byte[] bytes(InputStream input, int length) throws IOException {
        // A damaged length must not allocate what it says.
        if (length < 0 || length > MOST_BYTES) {
            throw new IOException("a field of " + length + " bytes");
        }
        byte[] found = new byte[length];
        if (input.readNBytes(found, 0, length) < length) {
            throw new EOFException("the message ends in the middle of a field");
        }
        return found;
    }

    private static int fixed32(InputStream input) throws IOException {
        byte[] raw = bytes(input, FIXED32_BYTES);
        return raw[0] & 0xFF | (raw[1] & 0xFF) << 8 | (raw[2] & 0xFF) << 16 | (raw[3] & 0xFF) << 24;
    }

    private static long varint(InputStream input) throws IOException {
        long value = 0;
        for (int shift = 0; shift < Long.SIZE; shift += 7) {
            int next = input.read();
            if (next < 0) {
                throw new EOFException("the message ends in the middle of a number");
            }
            value |= (long) (next & 0x7F) << shift;
            if (next < 0x80) {
                return value;
            }
        }
        throw new IOException("a number of more than ten bytes");
    }
}
