package io.aquifer.kafka.config;

/** Which of Kafka's two managers is configured. */
public enum Role {
    STORAGE(Property.STORAGE_ENDPOINTS, "rsm.config."),
    METADATA(Property.METADATA_ENDPOINTS, "rlmm.config.");

    private final Property endpoints;
    private final String defaultPrefix;

    Role(Property endpoints, String defaultPrefix) {
        this.endpoints = endpoints;
        this.defaultPrefix = defaultPrefix;
    }

    /** The property that names the services. */
    public Property endpoints() {
        return endpoints;
    }

    /** Kafka's default prefix in server.properties. */
    public String defaultPrefix() {
        return defaultPrefix;
    }
}
