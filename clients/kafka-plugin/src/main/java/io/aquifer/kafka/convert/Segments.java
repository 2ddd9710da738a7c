package io.aquifer.kafka.convert;

import aquifer.common.v1.Partition;
import aquifer.common.v1.Segment;
import com.google.protobuf.ByteString;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/** Kafka's values as messages of the contracts, and back. */
public final class Segments {
    private Segments() {
    }

    /** A partition as a message. */
    public static Partition.TopicIdPartition toProto(TopicIdPartition partition) {
        return Partition.TopicIdPartition.newBuilder()
                .setTopicId(partition.topicId().toString())
                .setTopic(partition.topic())
                .setPartition(partition.partition())
                .build();
    }

    /** A segment id as a message. */
    public static Segment.RemoteLogSegmentId toProto(RemoteLogSegmentId id) {
        return Segment.RemoteLogSegmentId.newBuilder()
                .setTopicIdPartition(toProto(id.topicIdPartition()))
                .setId(id.id().toString())
                .build();
    }

    /** Metadata as a message. */
    public static Segment.RemoteLogSegmentMetadata toProto(RemoteLogSegmentMetadata metadata) {
        Segment.RemoteLogSegmentMetadata.Builder builder = Segment.RemoteLogSegmentMetadata.newBuilder()
                .setSegmentId(toProto(metadata.remoteLogSegmentId()))
                .setStartOffset(metadata.startOffset())
                .setEndOffset(metadata.endOffset())
                .setBrokerId(metadata.brokerId())
                .setMaxTimestampMs(metadata.maxTimestampMs())
                .setEventTimestampMs(metadata.eventTimestampMs())
                .setSegmentSizeBytes(metadata.segmentSizeInBytes())
                .setState(toProto(metadata.state()))
                .putAllSegmentLeaderEpochs(metadata.segmentLeaderEpochs())
                .setTxnIndexEmpty(KafkaTypes.isTxnIndexEmpty(metadata));
        metadata.customMetadata().ifPresent(custom -> builder.setCustomMetadata(ByteString.copyFrom(custom.value())));
        return builder.build();
    }

    /** A message as metadata. */
    public static RemoteLogSegmentMetadata fromProto(Segment.RemoteLogSegmentMetadata message) {
        Segment.RemoteLogSegmentId id = message.getSegmentId();
        return KafkaTypes.segment(
                new RemoteLogSegmentId(fromProto(id.getTopicIdPartition()), Uuid.fromString(id.getId())),
                message,
                message.hasCustomMetadata()
                        ? Optional.of(new CustomMetadata(message.getCustomMetadata().toByteArray()))
                        : Optional.empty(),
                fromProto(message.getState()),
                message.getSegmentLeaderEpochsMap());
    }

    /** Whether the segment surely has no transaction index; false on Kafka 3.9, which does not say. */
    public static boolean isTxnIndexEmpty(RemoteLogSegmentMetadata metadata) {
        return KafkaTypes.isTxnIndexEmpty(metadata);
    }

    /** A state change as a message. */
    public static Segment.RemoteLogSegmentMetadataUpdate toProto(RemoteLogSegmentMetadataUpdate update) {
        Segment.RemoteLogSegmentMetadataUpdate.Builder builder = Segment.RemoteLogSegmentMetadataUpdate.newBuilder()
                .setSegmentId(toProto(update.remoteLogSegmentId()))
                .setEventTimestampMs(update.eventTimestampMs())
                .setState(toProto(update.state()))
                .setBrokerId(update.brokerId());
        update.customMetadata().ifPresent(custom -> builder.setCustomMetadata(ByteString.copyFrom(custom.value())));
        return builder.build();
    }

    /** An index type as a message; both keep Kafka's order. */
    public static Segment.IndexType toProto(IndexType type) {
        return Segment.IndexType.forNumber(type.ordinal() + 1);
    }

    /** A deletion state as a message. */
    public static Segment.RemotePartitionDeleteState toProto(RemotePartitionDeleteState state) {
        return Segment.RemotePartitionDeleteState.forNumber(state.id() + 1);
    }

    /** A message as a deletion state. */
    public static RemotePartitionDeleteState fromProto(Segment.RemotePartitionDeleteState state) {
        return RemotePartitionDeleteState.forId((byte) (state.getNumber() - 1));
    }

    private static Segment.RemoteLogSegmentState toProto(RemoteLogSegmentState state) {
        return Segment.RemoteLogSegmentState.forNumber(state.id() + 1);
    }

    /** A message as a segment state. */
    public static RemoteLogSegmentState fromProto(Segment.RemoteLogSegmentState state) {
        return RemoteLogSegmentState.forId((byte) (state.getNumber() - 1));
    }

    private static TopicIdPartition fromProto(Partition.TopicIdPartition message) {
        return new TopicIdPartition(
                Uuid.fromString(message.getTopicId()), new TopicPartition(message.getTopic(), message.getPartition()));
    }
}
