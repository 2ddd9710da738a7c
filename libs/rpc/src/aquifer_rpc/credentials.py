"""gRPC credentials out of TLS files."""

import grpc

from aquifer_rpc.tls_files import TlsFiles, TlsMaterial


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a server, which asks for the newest material at each handshake; mutual with authorities.

    gRPC asks in threads of its own, one at a time; connections that exist keep what they were made with.
    """
    given = files.material

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        newest = files.material
        if newest is given:
            return None
        given = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given),
        fetch,  # type: ignore[arg-type]  # the stubs do not know that None means "nothing new"
        require_client_authentication=given.authorities is not None,
    )


def client_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    """Credentials of a client, fixed for the life of a channel."""
    return grpc.ssl_channel_credentials(
        root_certificates=material.authorities,
        private_key=material.key,
        certificate_chain=material.certificates,
    )


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key or b"", material.certificates or b"")],
        root_certificates=material.authorities,
    )
