package io.aquifer.kafka.storage;

import io.aquifer.kafka.rpc.RpcException;
import java.util.zip.CRC32C;

/**
 * A message of a byte stream.
 *
 * @param position of the first byte in the file.
 * @param data the bytes; nobody changes them.
 * @param crc32c their CRC-32C as the service says.
 */
record Piece(long position, byte[] data, int crc32c) {

    /** Position after the last byte. */
    long end() {
        return position + data.length;
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
        crc.update(data);
        if ((int) crc.getValue() != crc32c) {
            throw RpcException.damaged("the piece at " + position + " does not match its CRC");
        }
    }
}
