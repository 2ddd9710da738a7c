package io.aquifer.kafka.support;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.zip.CRC32C;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * A segment in the formats of a broker, in files.
 *
 * @param log bytes of the log.
 * @param offsetIndex bytes of the offset index.
 */
public record BuiltSegment(RemoteLogSegmentMetadata metadata, LogSegmentData data, byte[] log, byte[] offsetIndex) {
    private static final int RECORD_BYTES = 1000;
    private static final long FIRST_TIMESTAMP_MS = 1_700_000_000_000L;

    /** A segment of so many batches with one record of 1000 bytes each, from offset 0, without a transaction index. */
    public static BuiltSegment of(Path folder, int batches) throws IOException {
        Random random = new Random(batches);
        ByteBuffer log = ByteBuffer.allocate(batches * (RECORD_BYTES + 100));
        ByteBuffer offsets = ByteBuffer.allocate(batches * 8);
        ByteBuffer times = ByteBuffer.allocate(batches * 12);
        for (int offset = 0; offset < batches; offset++) {
            if (offset > 0 && offset % 4 == 0) {
                offsets.putInt(offset).putInt(log.position());
                times.putLong(FIRST_TIMESTAMP_MS + offset).putInt(offset);
            }
            byte[] value = new byte[RECORD_BYTES];
            random.nextBytes(value);
            log.put(MemoryRecords.withRecords((long) offset, Compression.NONE, 0,
                    new SimpleRecord(FIRST_TIMESTAMP_MS + offset, value)).buffer());
        }
        byte[] logBytes = written(log);
        byte[] offsetBytes = written(offsets);
        LogSegmentData data = new LogSegmentData(
                Files.write(folder.resolve("00.log"), logBytes),
                Files.write(folder.resolve("00.index"), offsetBytes),
                Files.write(folder.resolve("00.timeindex"), written(times)),
                Optional.empty(),
                Files.write(folder.resolve("00.snapshot"), emptySnapshot()),
                ByteBuffer.wrap("0\n1\n0 0\n".getBytes(StandardCharsets.UTF_8)));
        RemoteLogSegmentMetadata metadata = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition(), Uuid.randomUuid()), 0, batches - 1, FIRST_TIMESTAMP_MS + batches - 1, 1,
                FIRST_TIMESTAMP_MS, logBytes.length, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_STARTED, Map.of(0, 0L));
        return new BuiltSegment(metadata, data, logBytes, offsetBytes);
    }

    /** A partition of a topic that nobody else has. */
    public static TopicIdPartition partition() {
        Uuid id = Uuid.randomUuid();
        return new TopicIdPartition(id, new TopicPartition("topic-" + id.toString().replaceAll("[^A-Za-z0-9]", "x"), 0));
    }

    private static byte[] emptySnapshot() {
        byte[] entries = {0, 0, 0, 0};
        CRC32C crc = new CRC32C();
        crc.update(entries);
        return ByteBuffer.allocate(10).putShort((short) 1).putInt((int) crc.getValue()).put(entries).array();
    }

    private static byte[] written(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.position()];
        buffer.flip().get(bytes);
        return bytes;
    }
}
