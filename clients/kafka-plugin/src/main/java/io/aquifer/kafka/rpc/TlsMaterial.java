package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import io.grpc.netty.GrpcSslContexts;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import javax.net.ssl.SSLException;

/**
 * What the files of {@code aquifer.tls} held at one moment, checked to fit together.
 *
 * @param files those that settings name.
 * @param context what connections are made with.
 */
record TlsMaterial(List<PemFile> files, SslContext context) {
    private static final Map<String, String> SIGNATURES = Map.of("RSA", "SHA256withRSA", "EC", "SHA256withECDSA", "EdDSA", "EdDSA");
    private static final byte[] PROBE = "which key is it".getBytes(StandardCharsets.US_ASCII);

    /**
     * Reads the files that settings name.
     *
     * @throws SettingsException one cannot be read or is not whole, or the key is not the certificate's.
     */
    static TlsMaterial read(Settings settings) {
        Optional<PemFile> authorities = PemFile.read(settings, Property.TLS_CA_FILE);
        Optional<PemFile> certificates = PemFile.read(settings, Property.TLS_CERTIFICATE_FILE);
        Optional<PemFile> key = PemFile.read(settings, Property.TLS_KEY_FILE);
        SslContextBuilder builder = GrpcSslContexts.forClient();
        authorities.ifPresent(file -> builder.trustManager(file.certificates()));
        certificates.ifPresent(file -> {
            List<X509Certificate> chain = file.certificates();
            builder.keyManager(checked(key.orElseThrow(), chain.get(0)), chain);
        });
        List<PemFile> files = Stream.of(authorities, certificates, key).flatMap(Optional::stream).toList();
        try {
            return new TlsMaterial(files, builder.build());
        } catch (SSLException | IllegalArgumentException error) {
            throw new SettingsException("the files of aquifer.tls are refused: " + error.getMessage() + "; give PEM files, the key in PKCS#8");
        }
    }

    /** Whether nothing has changed. */
    boolean holdsTheSameAs(TlsMaterial other) {
        return files.equals(other.files);
    }

    /** The key; a wrong one would only be found out by services, at each connection. */
    private static PrivateKey checked(PemFile file, X509Certificate certificate) {
        PrivateKey key = file.key(certificate);
        String algorithm = SIGNATURES.get(certificate.getPublicKey().getAlgorithm());
        try {
            if (algorithm != null && !isPair(key, certificate, algorithm)) {
                throw file.refused("it is not the key of the first certificate in " + Property.TLS_CERTIFICATE_FILE.key(), "give its key");
            }
        } catch (GeneralSecurityException error) {
            throw file.refused("the key cannot be used: " + error.getMessage(), "give the certificate's key in PKCS#8");
        }
        return key;
    }

    private static boolean isPair(PrivateKey key, X509Certificate certificate, String algorithm) throws GeneralSecurityException {
        Signature signing = Signature.getInstance(algorithm);
        signing.initSign(key);
        signing.update(PROBE);
        byte[] signed = signing.sign();
        Signature verifying = Signature.getInstance(algorithm);
        verifying.initVerify(certificate.getPublicKey());
        verifying.update(PROBE);
        return verifying.verify(signed);
    }
}
