package io.aquifer.kafka.config;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The checked properties of one manager. Immutable. */
public final class Settings {
    private final Role role;
    private final Map<Property, String> values;
    private final List<HostPort> endpoints;
    private final String brokerId;

    private Settings(Role role, Map<Property, String> values, String brokerId) {
        this.role = role;
        this.values = values;
        this.brokerId = brokerId;
        String text = values.get(role.endpoints());
        if (text == null) {
            throw new SettingsException(role.endpoints().key() + " is missing; give host:port, or several separated by commas");
        }
        this.endpoints = HostPort.parseAll(role.endpoints(), text);
        checkAll();
    }

    /**
     * Reads what Kafka hands to {@code configure}. Names that do not begin with {@code aquifer.} are Kafka's own and are left alone.
     *
     * @throws SettingsException a name is unknown, the endpoints are missing, or a value is refused.
     */
    public static Settings parse(Role role, Map<String, ?> configs) {
        Map<Property, String> values = new HashMap<>();
        configs.forEach((key, value) -> {
            if (key.startsWith(Property.PREFIX) && value != null) {
                Property property = Property.of(key)
                        .orElseThrow(() -> new SettingsException(key + " is not known; remove it or correct its name"));
                values.put(property, value.toString().strip());
            }
        });
        Object broker = configs.get("broker.id");
        return new Settings(role, values, broker == null ? "unknown" : broker.toString());
    }

    /** Which manager this is for. */
    public Role role() {
        return role;
    }

    /** The services to call. */
    public List<HostPort> endpoints() {
        return endpoints;
    }

    /** Kafka's broker id, for names of metrics and for traces. */
    public String brokerId() {
        return brokerId;
    }

    /** The text of a property, or its default. */
    public Optional<String> text(Property property) {
        return Optional.ofNullable(values.get(property)).or(property::defaultText);
    }

    /** A property in milliseconds. */
    public Duration duration(Property property) {
        return Duration.ofMillis(number(property));
    }

    /** A property that is a whole number above 0; {@code aquifer.fetch.keep.bytes} may be 0. */
    public int number(Property property) {
        String text = text(property).orElseThrow();
        int least = property == Property.FETCH_KEEP_BYTES ? 0 : 1;
        try {
            int number = Integer.parseInt(text);
            if (number >= least) {
                return number;
            }
        } catch (NumberFormatException error) {
            // Refused below.
        }
        throw new SettingsException(property.key() + "=" + text + ": give a whole number from " + least + " to " + Integer.MAX_VALUE);
    }

    /** The share of traces to record. */
    public double sampleRatio() {
        String text = text(Property.TELEMETRY_SAMPLE_RATIO).orElseThrow();
        try {
            double ratio = Double.parseDouble(text);
            if (ratio >= 0 && ratio <= 1) {
                return ratio;
            }
        } catch (NumberFormatException error) {
            // Refused below.
        }
        throw new SettingsException(Property.TELEMETRY_SAMPLE_RATIO.key() + "=" + text + ": give a number from 0 to 1");
    }

    /** A property that names a file. */
    public Optional<Path> file(Property property) {
        return text(property).map(Path::of);
    }

    /** Whether connections use TLS. */
    public boolean tls() {
        return Boolean.parseBoolean(text(Property.TLS_ENABLE).orElseThrow())
                || values.keySet().stream().anyMatch(each -> each != Property.TLS_ENABLE && each.key().startsWith("aquifer.tls."));
    }

    private void checkAll() {
        for (Property property : Property.values()) {
            if (property.defaultText().isPresent() && property.defaultText().get().chars().allMatch(Character::isDigit)) {
                number(property);
            }
        }
        sampleRatio();
        checkTls();
        checkTelemetry();
    }

    private void checkTls() {
        String enable = text(Property.TLS_ENABLE).orElseThrow();
        if (!enable.equals("true") && !enable.equals("false")) {
            throw new SettingsException(Property.TLS_ENABLE.key() + "=" + enable + ": give true or false");
        }
        text(Property.TLS_SERVER_NAME).filter(each -> !HostPort.isHost(each)).ifPresent(each -> {
            throw new SettingsException(Property.TLS_SERVER_NAME.key() + "=" + each + ": give a host name as it stands in the certificates");
        });
        for (Property property : List.of(Property.TLS_CA_FILE, Property.TLS_CERTIFICATE_FILE, Property.TLS_KEY_FILE)) {
            file(property).filter(path -> !Files.isReadable(path)).ifPresent(path -> {
                throw new SettingsException(property.key() + "=" + path + " cannot be read; name a readable PEM file");
            });
        }
        if (file(Property.TLS_CERTIFICATE_FILE).isPresent() != file(Property.TLS_KEY_FILE).isPresent()) {
            throw new SettingsException(Property.TLS_CERTIFICATE_FILE.key() + " and " + Property.TLS_KEY_FILE.key()
                    + " belong together; give both or none");
        }
    }

    private void checkTelemetry() {
        text(Property.TELEMETRY_ENDPOINT).filter(each -> !isEndpointUrl(each)).ifPresent(each -> {
            throw new SettingsException(Property.TELEMETRY_ENDPOINT.key() + "=" + each + ": give http://host:port");
        });
    }

    private static boolean isEndpointUrl(String text) {
        try {
            URI uri = new URI(text);
            return text.matches("https?://[^/]+/?") && uri.getHost() != null && uri.getPort() != 0;
        } catch (URISyntaxException error) {
            return false;
        }
    }
}
