package io.aquifer.kafka.support;

import io.aquifer.kafka.GrpcRemoteLogMetadataManager;
import io.aquifer.kafka.GrpcRemoteStorageManager;
import java.util.HashMap;
import java.util.Map;

/** The services that the tests are given, and managers that are connected to them. */
public final class Services {
    /** Environment variable with the storage service's address. */
    public static final String STORAGE = "AQUIFER_TEST_STORAGE_ENDPOINTS";
    /** Environment variable with the metadata service's address. */
    public static final String METADATA = "AQUIFER_TEST_METADATA_ENDPOINTS";

    private Services() {
    }

    /** Whether both addresses are given. */
    public static boolean isConfigured() {
        return System.getenv(STORAGE) != null && System.getenv(METADATA) != null;
    }

    /** A storage manager with the defaults. */
    public static GrpcRemoteStorageManager storageManager() {
        GrpcRemoteStorageManager manager = new GrpcRemoteStorageManager();
        manager.configure(Map.of("broker.id", "1", "aquifer.storage.endpoints", System.getenv(STORAGE)));
        return manager;
    }

    /** A metadata manager with the defaults and a few more properties. */
    public static GrpcRemoteLogMetadataManager metadataManager(Map<String, String> more) {
        Map<String, String> configs = new HashMap<>(more);
        configs.put("broker.id", "1");
        configs.putIfAbsent("aquifer.metadata.endpoints", System.getenv(METADATA));
        // A machine under load must not fail a test.
        configs.putIfAbsent("aquifer.metadata.ready.wait.ms", "60000");
        GrpcRemoteLogMetadataManager manager = new GrpcRemoteLogMetadataManager();
        manager.configure(configs);
        return manager;
    }
}
