package io.aquifer.kafka.storage;

import aquifer.storage.v1.RemoteStorageServiceOuterClass.SegmentPart;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;

/**
 * A file of a segment with its size at the beginning of the copy. The files are the broker's live ones, to be read during the call only.
 *
 * @param part which file.
 * @param sizeBytes exact size.
 * @param source opens it from its beginning.
 */
record UploadPart(SegmentPart part, long sizeBytes, Source source) {

    /** Opens a part. */
    @FunctionalInterface
    interface Source {
        InputStream open() throws IOException;
    }

    /** Every part in the order of the contract: indexes first, the log last. */
    static List<UploadPart> of(LogSegmentData data) throws IOException {
        List<UploadPart> parts = new ArrayList<>();
        parts.add(ofFile(SegmentPart.SEGMENT_PART_OFFSET_INDEX, data.offsetIndex()));
        parts.add(ofFile(SegmentPart.SEGMENT_PART_TIME_INDEX, data.timeIndex()));
        if (data.transactionIndex().isPresent()) {
            parts.add(ofFile(SegmentPart.SEGMENT_PART_TRANSACTION_INDEX, data.transactionIndex().get()));
        }
        parts.add(ofFile(SegmentPart.SEGMENT_PART_PRODUCER_SNAPSHOT, data.producerSnapshotIndex()));
        parts.add(ofBytes(SegmentPart.SEGMENT_PART_LEADER_EPOCHS, data.leaderEpochIndex()));
        parts.add(ofFile(SegmentPart.SEGMENT_PART_SEGMENT, data.logSegment()));
        return parts;
    }

    InputStream open() throws IOException {
        return source.open();
    }

    private static UploadPart ofFile(SegmentPart part, Path file) throws IOException {
        return new UploadPart(part, Files.size(file), () -> Files.newInputStream(file));
    }

    private static UploadPart ofBytes(SegmentPart part, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return new UploadPart(part, bytes.length, () -> new ByteArrayInputStream(bytes));
    }
}
