package io.aquifer.kafka.config;

import java.util.Arrays;
import java.util.List;

/** An address. */
public record HostPort(String host, int port) {

    /**
     * Reads {@code host:port}; an IPv6 host stands in brackets.
     *
     * @throws SettingsException when it is something else.
     */
    static HostPort parse(Property property, String text) {
        int colon = text.lastIndexOf(':');
        String host = colon < 0 ? "" : text.substring(0, colon);
        if (host.isEmpty() || host.contains("/") || (host.contains(":") && !host.startsWith("["))) {
            throw refused(property, text);
        }
        try {
            int port = Integer.parseInt(text.substring(colon + 1));
            if (port < 1 || port > 65_535) {
                throw refused(property, text);
            }
            return new HostPort(host.replace("[", "").replace("]", ""), port);
        } catch (NumberFormatException error) {
            throw refused(property, text);
        }
    }

    /** Reads a list that is separated by commas; the same address twice counts once. */
    static List<HostPort> parseAll(Property property, String text) {
        List<HostPort> all = Arrays.stream(text.split(","))
                .map(String::strip)
                .filter(each -> !each.isEmpty())
                .map(each -> parse(property, each))
                .distinct()
                .toList();
        if (all.isEmpty()) {
            throw new SettingsException(property.key() + " is empty; give host:port, or several separated by commas");
        }
        return all;
    }

    private static SettingsException refused(Property property, String text) {
        return new SettingsException(property.key() + "=" + text + ": give host:port, or several separated by commas");
    }

    @Override
    public String toString() {
        return host.contains(":") ? "[" + host + "]:" + port : host + ":" + port;
    }
}
