package io.aquifer.kafka.check;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.jar.JarFile;
import java.util.stream.Stream;

/** Whether a manager's class path leads to this plugin: Kafka ignores entries that do not exist, and then does not find the class. */
final class ClassPathCheck {
    private ClassPathCheck() {
    }

    /**
     * Looks for a class along a class path as Kafka reads it.
     *
     * @param value null when the property is not set, so that the broker's own class path counts.
     */
    static Optional<Finding> check(String property, String value, String className) {
        if (value == null || value.isBlank()) {
            return Optional.empty();
        }
        try {
            for (Path jar : jars(value)) {
                if (holds(jar, className)) {
                    return Optional.empty();
                }
            }
        } catch (IOException error) {
            return Optional.of(Finding.problem(property + "=" + value + " cannot be read: " + error));
        }
        return Optional.of(Finding.problem(property + "=" + value + " leads to no jar with " + className
                + "; name aquifer-kafka-plugin.jar, or its folder followed by /*"));
    }

    private static List<Path> jars(String value) throws IOException {
        List<Path> all = new ArrayList<>();
        for (String entry : value.strip().split(File.pathSeparator)) {
            if (entry.endsWith("/*")) {
                Path folder = Path.of(entry.substring(0, entry.length() - 2));
                if (Files.isDirectory(folder)) {
                    try (Stream<Path> files = Files.list(folder)) {
                        files.filter(each -> each.toString().matches(".*\\.(jar|zip)")).forEach(all::add);
                    }
                }
            } else {
                all.add(Path.of(entry));
            }
        }
        return all;
    }

    private static boolean holds(Path path, String className) throws IOException {
        String file = className.replace('.', '/') + ".class";
        if (Files.isDirectory(path)) {
            return Files.exists(path.resolve(file));
        }
        if (!Files.isRegularFile(path)) {
            return false;
        }
        try (JarFile jar = new JarFile(path.toFile())) {
            return jar.getEntry(file) != null;
        }
    }
}
