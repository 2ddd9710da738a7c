package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The files of {@code aquifer.tls}, read again when they change: what was read last and fits together stays in use until something newer
 * does. Safe for any number of threads.
 */
final class TlsFiles {
    private static final Logger LOG = LoggerFactory.getLogger(TlsFiles.class);
    private static final String STATE = "fileKey,size,lastModifiedTime";
    // What permissions were before may be what is put right.
    private static final String STATE_ON_UNIX = "unix:fileKey,size,lastModifiedTime,ctime";

    private final Settings settings;
    private final List<Property> named;
    private final long intervalNanos;
    private final ReentrantLock looking = new ReentrantLock();
    private final AtomicLong reads = new AtomicLong();
    private final AtomicLong refusals = new AtomicLong();
    private volatile TlsMaterial material;
    private volatile long nextLookNanos;
    private List<Map<String, Object>> seen;
    private boolean refused;

    /**
     * Reads the files.
     *
     * @throws SettingsException one cannot be read, or they do not fit together.
     */
    TlsFiles(Settings settings) {
        this.settings = settings;
        this.named = Stream.of(Property.TLS_CA_FILE, Property.TLS_CERTIFICATE_FILE, Property.TLS_KEY_FILE)
                .filter(each -> settings.file(each).isPresent()).toList();
        this.intervalNanos = settings.duration(Property.TLS_RELOAD_MS).toNanos();
        // What changes from here on is read again: the state is older than the content.
        seen = state();
        material = TlsMaterial.read(settings);
        nextLookNanos = System.nanoTime() + intervalNanos;
    }

    /** Looks at the files unless the last look is not an interval old; never fails. */
    void lookWhenDue() {
        if (nextLookNanos - System.nanoTime() <= 0 && looking.tryLock()) {
            try {
                nextLookNanos = System.nanoTime() + intervalNanos;
                look();
            } finally {
                looking.unlock();
            }
        }
    }

    /** What to use now. */
    TlsMaterial material() {
        return material;
    }

    /** How often newer files were taken. */
    long reads() {
        return reads.get();
    }

    /** How many looks found files that do not fit together. */
    long refusals() {
        return refusals.get();
    }

    private void look() {
        try {
            List<Map<String, Object>> found = state();
            if (found.equals(seen) && !refused) {
                return;
            }
            TlsMaterial read = TlsMaterial.read(settings);
            if (!state().equals(found)) {
                // Being written; the next look finds them whole.
                return;
            }
            seen = found;
            take(read);
        } catch (RuntimeException error) {
            // SettingsException above all; whatever else it is, a call that has certificates must not fail because of newer ones.
            refuse(error);
        }
    }

    private void take(TlsMaterial read) {
        boolean changed = !read.holdsTheSameAs(material);
        if (changed) {
            material = read;
        }
        if (changed || refused) {
            refused = false;
            reads.incrementAndGet();
            LOG.info("The TLS files {} were read again; new connections are made with them", names());
        }
    }

    private void refuse(RuntimeException error) {
        refusals.incrementAndGet();
        if (!refused) {
            LOG.warn("The TLS files {} are refused, those from before stay in use: {}", names(), error.getMessage());
        }
        refused = true;
    }

    private List<Path> names() {
        return named.stream().map(settings::file).flatMap(Optional::stream).toList();
    }

    private List<Map<String, Object>> state() {
        List<Map<String, Object>> found = new ArrayList<>();
        for (Property property : named) {
            Path path = settings.file(property).orElseThrow();
            try {
                boolean unix = path.getFileSystem().supportedFileAttributeViews().contains("unix");
                found.add(Files.readAttributes(path, unix ? STATE_ON_UNIX : STATE));
            } catch (IOException error) {
                throw PemFile.unreadable(property, path, error);
            }
        }
        return found;
    }
}
