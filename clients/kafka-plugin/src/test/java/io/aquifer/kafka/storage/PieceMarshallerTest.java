package io.aquifer.kafka.storage;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchLogSegmentResponse;
import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.ByteArrayInputStream;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Messages are read as protobuf reads them. */
class PieceMarshallerTest {
    private static final PieceMarshaller MARSHALLER = new PieceMarshaller();

    @Test
    void anyMessageIsReadAsProtobufReadsIt() {
        Random random = new Random(1);
        for (int size : new int[] {0, 1, 127, 128, 16_384, 1024 * 1024}) {
            byte[] data = new byte[size];
            random.nextBytes(data);
            long position = random.nextLong() >>> random.nextInt(Long.SIZE);
            FetchLogSegmentResponse message = FetchLogSegmentResponse.newBuilder()
                    .setPosition(position).setData(ByteString.copyFrom(data)).setCrc32C(random.nextInt()).build();
            Piece piece = parse(message.toByteArray());
            assertEquals(position, piece.position());
            assertArrayEquals(data, piece.data());
            assertEquals(message.getCrc32C(), piece.crc32c());
        }
    }

    @Test
    void fieldsOfLaterVersionsAreSkipped() {
        UnknownFieldSet.Field field = UnknownFieldSet.Field.newBuilder()
                .addVarint(1L << 60).addFixed32(7).addFixed64(8).addLengthDelimited(ByteString.copyFromUtf8("later")).build();
        FetchLogSegmentResponse message = FetchLogSegmentResponse.newBuilder()
                .setPosition(5).setData(ByteString.copyFromUtf8("now")).setCrc32C(9)
                .setUnknownFields(UnknownFieldSet.newBuilder().addField(100, field).build()).build();
        Piece piece = parse(message.toByteArray());
        assertEquals(5, piece.position());
        assertArrayEquals("now".getBytes(java.nio.charset.StandardCharsets.UTF_8), piece.data());
        assertEquals(9, piece.crc32c());
    }

    @Test
    void whatIsCutOrTooLongIsRefused() {
        byte[] whole = FetchLogSegmentResponse.newBuilder().setData(ByteString.copyFrom(new byte[1000])).build().toByteArray();
        assertRefused(Arrays.copyOf(whole, 500));
        assertRefused(Arrays.copyOf(whole, 1));
        assertRefused(new byte[] {2 << 3 | 2, -1, -1, -1, -1, 7});
    }

    private static void assertRefused(byte[] message) {
        StatusRuntimeException error = assertThrows(StatusRuntimeException.class, () -> parse(message));
        assertEquals(Status.Code.INTERNAL, error.getStatus().getCode());
    }

    private static Piece parse(byte[] message) {
        return MARSHALLER.parse(new ByteArrayInputStream(message));
    }
}
