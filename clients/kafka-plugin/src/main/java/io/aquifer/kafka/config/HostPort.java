package io.aquifer.kafka.config;

import java.net.URI;
import java.net.URISyntaxException;
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
            HostPort found = new HostPort(host.startsWith("[") && host.endsWith("]") ? host.substring(1, host.length() - 1) : host, port);
            if (port < 1 || port > 65_535 || !isHost(found.host)) {
                throw refused(property, text);
            }
            return found;
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

    /** Whether gRPC takes it for a host: letters, digits, dots and hyphens, or an IP address. */
    static boolean isHost(String text) {
        try {
            return new URI(null, null, text, -1, null, null, null).getHost() != null;
        } catch (URISyntaxException error) {
            return false;
        }
    }

    private static SettingsException refused(Property property, String text) {
        return new SettingsException(property.key() + "=" + text + ": give host:port, or several separated by commas; a host has letters,"
                + " digits, dots and hyphens, or is an IP address, IPv6 in brackets");
    }

    @Override
    public String toString() {
        return host.contains(":") ? "[" + host + "]:" + port : host + ":" + port;
    }
}
