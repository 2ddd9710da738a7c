package io.aquifer.kafka.convert;

import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/** What differs between the storage API of Kafka 3.9 and that of 4.x: the flag for empty transaction indexes (KIP-1058). */
final class KafkaTypes {
    private static final boolean KNOWS_TXN_FLAG = knowsTxnFlag();

    private KafkaTypes() {
    }

    /** Whether the segment surely has no transaction index; false on 3.9, which does not say. */
    static boolean isTxnIndexEmpty(RemoteLogSegmentMetadata metadata) {
        return KNOWS_TXN_FLAG && metadata.isTxnIdxEmpty();
    }

    /** Makes Kafka's value; 3.9 drops the flag. */
    static RemoteLogSegmentMetadata segment(
            RemoteLogSegmentId id, aquifer.common.v1.Segment.RemoteLogSegmentMetadata from,
            Optional<CustomMetadata> custom, RemoteLogSegmentState state, Map<Integer, Long> epochs) {
        int size = Math.toIntExact(from.getSegmentSizeBytes());
        if (KNOWS_TXN_FLAG) {
            return new RemoteLogSegmentMetadata(
                    id, from.getStartOffset(), from.getEndOffset(), from.getMaxTimestampMs(), from.getBrokerId(),
                    from.getEventTimestampMs(), size, custom, state, epochs, from.getTxnIndexEmpty());
        }
        return new RemoteLogSegmentMetadata(
                id, from.getStartOffset(), from.getEndOffset(), from.getMaxTimestampMs(), from.getBrokerId(),
                from.getEventTimestampMs(), size, custom, state, epochs);
    }

    private static boolean knowsTxnFlag() {
        try {
            RemoteLogSegmentId none = new RemoteLogSegmentId(
                    new org.apache.kafka.common.TopicIdPartition(org.apache.kafka.common.Uuid.ZERO_UUID, 0, "probe"),
                    org.apache.kafka.common.Uuid.ONE_UUID);
            return new RemoteLogSegmentMetadata(none, 0, 0, 0, 0, 0, 0, Map.of(0, 0L), true).isTxnIdxEmpty();
        } catch (NoSuchMethodError error) {
            return false;
        }
    }
}
