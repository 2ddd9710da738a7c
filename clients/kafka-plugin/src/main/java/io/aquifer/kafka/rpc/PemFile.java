package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What a file of {@code aquifer.tls} held when it was read.
 *
 * @param property that names it.
 * @param path where it is.
 * @param text its content; PEM is ASCII, and other bytes are of no interest.
 */
record PemFile(Property property, Path path, String text) {
    private static final Pattern BLOCK = Pattern.compile("-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\\s]*)-----END \\1-----");
    private static final String BEGIN = "-----BEGIN ";

    /**
     * Reads the file of a property; empty when the property is not set.
     *
     * @throws SettingsException it cannot be read.
     */
    static Optional<PemFile> read(Settings settings, Property property) {
        return settings.file(property).map(path -> {
            try {
                return new PemFile(property, path, Files.readString(path, StandardCharsets.ISO_8859_1));
            } catch (IOException error) {
                throw unreadable(property, path, error);
            }
        });
    }

    /** The error for a file that is not there, or not for us. */
    static SettingsException unreadable(Property property, Path path, IOException error) {
        return new SettingsException(property.key() + "=" + path + " cannot be read (" + error + "); name a readable PEM file");
    }

    /**
     * Its certificates, at least one.
     *
     * @throws SettingsException there is none, or one is not whole.
     */
    List<X509Certificate> certificates() {
        List<X509Certificate> found = new ArrayList<>();
        try {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            for (byte[] block : blocks("CERTIFICATE")) {
                found.add((X509Certificate) factory.generateCertificate(new ByteArrayInputStream(block)));
            }
        } catch (GeneralSecurityException error) {
            throw refused("one of its certificates cannot be read: " + error.getMessage(), "give whole PEM certificates");
        }
        if (found.isEmpty()) {
            throw refused("it holds no certificate", "give PEM certificates");
        }
        return found;
    }

    /**
     * Its private key, which must be of the kind that the certificate's public key is.
     *
     * @throws SettingsException there is none of this kind without a password.
     */
    PrivateKey key(X509Certificate certificate) {
        List<byte[]> blocks = blocks("PRIVATE KEY");
        String algorithm = certificate.getPublicKey().getAlgorithm();
        if (blocks.size() != 1) {
            throw refused("it holds " + blocks.size() + " private keys", "give one PEM key in PKCS#8, without a password");
        }
        try {
            return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(blocks.get(0)));
        } catch (GeneralSecurityException error) {
            throw refused("it holds no key of the kind " + algorithm + ", as the certificate is", "give the certificate's key in PKCS#8");
        }
    }

    /** The error that names this file. */
    SettingsException refused(String complaint, String remedy) {
        return new SettingsException(property.key() + "=" + path + ": " + complaint + "; " + remedy);
    }

    /** Contents of the blocks of a kind; what stands between them is left alone, a block that does not end is refused. */
    private List<byte[]> blocks(String kind) {
        List<byte[]> found = new ArrayList<>();
        int whole = 0;
        for (Matcher match = BLOCK.matcher(text); match.find(); whole++) {
            if (match.group(1).equals(kind)) {
                found.add(decoded(match.group(2)));
            }
        }
        if (text.split(BEGIN, -1).length - 1 != whole) {
            throw refused("it is not whole", "give a whole PEM file");
        }
        return found;
    }

    private byte[] decoded(String base64) {
        try {
            return Base64.getMimeDecoder().decode(base64);
        } catch (IllegalArgumentException error) {
            throw refused("it is not whole: " + error.getMessage(), "give a whole PEM file");
        }
    }
}
