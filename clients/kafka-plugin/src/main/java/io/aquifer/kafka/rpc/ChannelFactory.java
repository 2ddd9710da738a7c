package io.aquifer.kafka.rpc;

import io.aquifer.kafka.config.HostPort;
import io.aquifer.kafka.config.Property;
import io.aquifer.kafka.config.Settings;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.ChannelOption;
import java.util.concurrent.TimeUnit;

/** Makes connections as settings ask for. */
final class ChannelFactory {
    private static final int MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

    private final Settings settings;

    ChannelFactory(Settings settings) {
        this.settings = settings;
    }

    /**
     * A connection, made by its first call.
     *
     * @param material null for plaintext.
     */
    ManagedChannel open(HostPort address, TlsMaterial material) {
        NettyChannelBuilder builder = NettyChannelBuilder.forAddress(address.host(), address.port())
                .maxInboundMessageSize(MAX_MESSAGE_BYTES)
                .flowControlWindow(settings.number(Property.FETCH_WINDOW_BYTES))
                .keepAliveTime(settings.number(Property.KEEPALIVE_MS), TimeUnit.MILLISECONDS)
                .keepAliveTimeout(settings.number(Property.KEEPALIVE_TIMEOUT_MS), TimeUnit.MILLISECONDS)
                .keepAliveWithoutCalls(true)
                .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, settings.number(Property.CONNECT_TIMEOUT_MS))
                // Retries at two levels multiply; ours know RetryInfo.
                .disableRetry();
        if (material == null) {
            return builder.usePlaintext().build();
        }
        settings.text(Property.TLS_SERVER_NAME).ifPresent(builder::overrideAuthority);
        return builder.sslContext(material.context()).build();
    }
}
