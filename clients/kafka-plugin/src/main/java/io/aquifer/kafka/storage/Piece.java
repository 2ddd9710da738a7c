package io.aquifer.kafka.storage;

import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchIndexResponse;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchLogSegmentResponse;
import com.google.protobuf.ByteString;
import io.aquifer.kafka.rpc.RpcException;
import java.util.zip.CRC32C;

/**
 * A message of a byte stream.
 *
 * @param position of the first byte in the file.
 * @param data the bytes.
 * @param crc32c their CRC-32C as the service says.
 */
record Piece(long position, ByteString data, int crc32c) {

    static Piece of(FetchLogSegmentResponse message) {
        return new Piece(message.getPosition(), message.getData(), message.getCrc32C());
    }

    static Piece of(FetchIndexResponse message) {
        return new Piece(message.getPosition(), message.getData(), message.getCrc32C());
    }

    /**
     * Checks that nothing was lost or changed on the way.
     *
     * @throws RpcException the piece does not begin where the one before ended, or does not match its CRC.
     */
    void check(long expectedPosition) throws RpcException {
        if (position != expectedPosition) {
            throw RpcException.damaged("a piece begins at " + position + " instead of " + expectedPosition);
        }
        CRC32C crc = new CRC32C();
        data.asReadOnlyByteBufferList().forEach(crc::update);
        if ((int) crc.getValue() != crc32c) {
            throw RpcException.damaged("the piece at " + position + " does not match its CRC");
        }
    }
}
