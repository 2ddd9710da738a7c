package io.aquifer.kafka.config;

/** A property is missing or its value is refused; the text is one line that names it and says what to give. */
public final class SettingsException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** An exception with its one line. */
    public SettingsException(String message) {
        super(message);
    }
}
