package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.HostPort;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.config.SettingsException;
import io.grpc.ManagedChannel;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.ChannelOption;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.File;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;

/** Makes connections as settings ask for. */
final class ChannelFactory {
    private static final int MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

    private final Settings settings;
    private final SslContext sslContext;

    ChannelFactory(Settings settings) {
        this.settings = settings;
        this.sslContext = settings.tls() ? sslContext(settings) : null;
    }

    ManagedChannel open(HostPort address) {
        NettyChannelBuilder builder = NettyChannelBuilder.forAddress(address.host(), address.port())
                .maxInboundMessageSize(MAX_MESSAGE_BYTES)
                .flowControlWindow(settings.number(Property.FETCH_WINDOW_BYTES))
                .keepAliveTime(settings.number(Property.KEEPALIVE_MS), TimeUnit.MILLISECONDS)
                .keepAliveTimeout(settings.number(Property.KEEPALIVE_TIMEOUT_MS), TimeUnit.MILLISECONDS)
                .keepAliveWithoutCalls(true)
                .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, settings.number(Property.CONNECT_TIMEOUT_MS))
                // Retries at two levels multiply; ours know RetryInfo.
                .disableRetry();
        if (sslContext == null) {
            return builder.usePlaintext().build();
        }
        settings.text(Property.TLS_SERVER_NAME).ifPresent(builder::overrideAuthority);
        return builder.sslContext(sslContext).build();
    }

    private static SslContext sslContext(Settings settings) {
        SslContextBuilder builder = GrpcSslContexts.forClient();
        try {
            settings.file(Property.TLS_CA_FILE).map(Path::toFile).ifPresent(builder::trustManager);
            Optional<File> certificate = settings.file(Property.TLS_CERTIFICATE_FILE).map(Path::toFile);
            certificate.ifPresent(file -> builder.keyManager(file, settings.file(Property.TLS_KEY_FILE).orElseThrow().toFile()));
            return builder.build();
        } catch (SSLException | IllegalArgumentException error) {
            throw new SettingsException("the files of aquifer.tls are refused: " + error.getMessage()
                    + "; give PEM files, the key in PKCS#8");
        }
    }
}
