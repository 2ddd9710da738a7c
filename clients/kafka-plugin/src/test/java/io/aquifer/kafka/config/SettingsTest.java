package io.aquifer.kafka.config;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
    @Test
    void defaultsAreWellFormed() {
        Settings settings = parse(Map.of());
        assertEquals(30_000, settings.number(Property.DEADLINE_MS));
        assertEquals(1.0, settings.sampleRatio());
        assertFalse(settings.tls());
    }

    @Test
    void kafkasOwnNamesAreLeftAlone() {
        Settings settings = parse(Map.of("broker.id", "7", "log.dir", "/data", "bootstrap.servers", "x"));
        assertEquals("7", settings.brokerId());
    }

    @Test
    void endpointsAreReadAndCountedOnce() {
        Settings settings = parse(Map.of("aquifer.storage.endpoints", " a:1, [::1]:2 ,a:1"));
        assertEquals(List.of(new HostPort("a", 1), new HostPort("::1", 2)), settings.endpoints());
        assertEquals("[::1]:2", settings.endpoints().get(1).toString());
    }

    @ParameterizedTest
    @CsvSource({
        "aquifer.storage.endpoints, storage",
        "aquifer.storage.endpoints, storage:0",
        "aquifer.storage.endpoints, storage:70000",
        "aquifer.storage.endpoints, http://storage:7100",
        "aquifer.storage.endpoints, ::1:7100",
        "aquifer.storage.endpoints, ','",
        "aquifer.storage.endpoints, sto rage:7100",
        "aquifer.storage.endpoints, [::g]:7100",
        "aquifer.storage.endpoints, [storage:7100",
        "aquifer.tls.server.name, no name",
        "aquifer.telemetry.endpoint, http://collector:port",
        "aquifer.telemetry.endpoint, http://a b",
        "aquifer.deadline.ms, 0",
        "aquifer.deadline.ms, -1",
        "aquifer.deadline.ms, soon",
        "aquifer.max.attempts, 1.5",
        "aquifer.telemetry.sample.ratio, 2",
        "aquifer.telemetry.endpoint, collector:4317",
        "aquifer.tls.enable, yes",
        "aquifer.tls.ca.file, /nowhere/ca.pem",
        "aquifer.storage.endpoint, storage:7100",
    })
    void badValuesAreRefusedInOneLineThatNamesTheProperty(String key, String value) {
        SettingsException error = assertThrows(SettingsException.class, () -> parse(Map.of(key, value)));
        assertTrue(error.getMessage().startsWith(key), error.getMessage());
        assertFalse(error.getMessage().contains("\n"));
    }

    @Test
    void missingEndpointsAreNamed() {
        SettingsException error = assertThrows(SettingsException.class, () -> Settings.parse(Role.METADATA, Map.of()));
        assertTrue(error.getMessage().startsWith("aquifer.metadata.endpoints is missing"), error.getMessage());
    }

    @Test
    void aCertificateWithoutItsKeyIsRefused(@TempDir Path folder) throws Exception {
        String file = Files.writeString(folder.resolve("broker.pem"), "x").toString();
        SettingsException error = assertThrows(SettingsException.class, () -> parse(Map.of("aquifer.tls.certificate.file", file)));
        assertTrue(error.getMessage().contains("aquifer.tls.key.file"), error.getMessage());
    }

    @Test
    void anyTlsPropertyTurnsTlsOn() {
        assertTrue(parse(Map.of("aquifer.tls.server.name", "storage")).tls());
        assertTrue(parse(Map.of("aquifer.tls.enable", "true")).tls());
    }

    @Test
    void theReadmeListsEveryPropertyWithItsDefault() throws Exception {
        String readme = Files.readString(Path.of("README.md"));
        for (Property property : Property.values()) {
            String row = "| `" + property.key() + "` | " + property.defaultText().map(each -> "`" + each + "`").orElse("unset") + " | "
                    + property.meaning() + " |\n";
            assertTrue(readme.contains(row), "README.md lacks: " + row);
        }
    }

    private static Settings parse(Map<String, String> values) {
        Map<String, String> all = new HashMap<>(Map.of("aquifer.storage.endpoints", "storage:7100"));
        all.putAll(values);
        return Settings.parse(Role.STORAGE, all);
    }
}
