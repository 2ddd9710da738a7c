package io.aquifer.kafka.storage;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aquifer.kafka.GrpcRemoteStorageManager;
import io.aquifer.kafka.support.BuiltSegment;
import io.aquifer.kafka.support.ScriptedStorage;
import io.netty.util.internal.PlatformDependent;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Memory outside the heap, which no garbage collection brings back. */
class DirectMemoryTest {
    private static final int WARM_UP = 200;
    private static final int READS = 800;
    private static final long MOST_MORE_BYTES = 32L * 1024 * 1024;

    @TempDir
    Path folder;

    @Test
    void readsThatStopEarlyGiveBackWhatWasUnderWay() throws Exception {
        BuiltSegment segment = BuiltSegment.of(folder, 10);
        try (ScriptedStorage service = new ScriptedStorage(new byte[100 * 64 * 1024]);
                GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager()) {
            manager.configure(Map.of("aquifer.storage.endpoints", service.address(), "aquifer.fetch.keep.bytes", "0"));
            stopEarly(manager, segment, WARM_UP);
            long before = PlatformDependent.usedDirectMemory();
            stopEarly(manager, segment, READS);
            long more = PlatformDependent.usedDirectMemory() - before;
            assertTrue(more < MOST_MORE_BYTES, more + " bytes more after " + READS + " reads");
        }
    }

    private static void stopEarly(GrpcRemoteStorageManager manager, BuiltSegment segment, int reads) throws Exception {
        for (int read = 0; read < reads; read++) {
            try (InputStream stream = manager.fetchLogSegment(segment.metadata(), 0)) {
                assertTrue(stream.read() >= 0);
            }
        }
    }
}
