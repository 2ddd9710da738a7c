package io.aquifer.kafka.check;

import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;

/** Looks at a broker's properties before the broker does. Needs no class of Kafka. */
final class Preflight {
    private static final String SYSTEM_ENABLE = "remote.log.storage.system.enable";
    private static final String CUSTOM_METADATA_MAX = "remote.log.metadata.custom.metadata.max.bytes";
    private static final int OUR_CUSTOM_METADATA_BYTES = 128;

    private final boolean online;

    /** Checks that ask the services too, or leave them out. */
    Preflight(boolean online) {
        this.online = online;
    }

    List<Finding> check(Path file) {
        Properties properties = new Properties();
        try (InputStream input = Files.newInputStream(file)) {
            // In Latin-1, as Kafka does.
            properties.load(input);
        } catch (IOException | IllegalArgumentException error) {
            return List.of(Finding.problem(file + " cannot be read: " + error));
        }
        List<Finding> findings = new ArrayList<>();
        checkSwitch(properties).ifPresent(findings::add);
        checkCustomMetadata(properties).ifPresent(findings::add);
        checkManager(properties, Role.STORAGE, "remote.log.storage.manager", findings);
        checkManager(properties, Role.METADATA, "remote.log.metadata.manager", findings);
        return findings;
    }

    private static Optional<Finding> checkSwitch(Properties properties) {
        String value = properties.getProperty(SYSTEM_ENABLE, "false").strip();
        return value.equalsIgnoreCase("true") ? Optional.empty()
                : Optional.of(Finding.problem(SYSTEM_ENABLE + "=" + value + ": tiering is off; set it to true"));
    }

    private static Optional<Finding> checkCustomMetadata(Properties properties) {
        String value = properties.getProperty(CUSTOM_METADATA_MAX, String.valueOf(OUR_CUSTOM_METADATA_BYTES)).strip();
        boolean enough = value.matches("\\d{1,9}") && Integer.parseInt(value) >= OUR_CUSTOM_METADATA_BYTES;
        return enough ? Optional.empty()
                : Optional.of(Finding.problem(CUSTOM_METADATA_MAX + "=" + value + ": give " + OUR_CUSTOM_METADATA_BYTES + " or more"));
    }

    private void checkManager(Properties properties, Role role, String base, List<Finding> findings) {
        String expected = "io.aquifer.kafka." + (role == Role.STORAGE ? "GrpcRemoteStorageManager" : "GrpcRemoteLogMetadataManager");
        String given = properties.getProperty(base + ".class.name");
        if (!expected.equals(given == null ? null : given.strip())) {
            String is = given == null ? " is missing" : "=" + given + " is not this plugin";
            findings.add(Finding.problem(base + ".class.name" + is + "; set it to " + expected));
            return;
        }
        ClassPathCheck.check(base + ".class.path", properties.getProperty(base + ".class.path"), expected).ifPresent(findings::add);
        String prefix = properties.getProperty(base + ".impl.prefix", role.defaultPrefix()).strip();
        try {
            Settings settings = Settings.parse(role, below(properties, prefix));
            if (online) {
                findings.addAll(ServiceCheck.check(settings, properties));
            } else {
                findings.add(Finding.ok("the properties below " + prefix + " are well formed"));
            }
        } catch (SettingsException error) {
            String text = error.getMessage();
            findings.add(Finding.problem(text.startsWith("aquifer.") ? prefix + text : text));
        }
    }

    private static Map<String, String> below(Properties properties, String prefix) {
        Map<String, String> found = new HashMap<>();
        for (String name : properties.stringPropertyNames()) {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), properties.getProperty(name));
            }
        }
        found.put("broker.id", properties.getProperty("node.id", properties.getProperty("broker.id", "unknown")));
        return found;
    }
}
