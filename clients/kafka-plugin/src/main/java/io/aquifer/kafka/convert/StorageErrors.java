package io.aquifer.kafka.convert;

import io.aquifer.kafka.rpc.RpcException;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** What Kafka's contracts allow out: {@code RemoteStorageException} and {@code RemoteResourceNotFoundException}. */
public final class StorageErrors {
    private StorageErrors() {
    }

    /**
     * Turns any failure into one of the two.
     *
     * @param what the operation and its subject, for people.
     */
    public static RemoteStorageException of(String what, Throwable failure) {
        if (failure instanceof RemoteStorageException known) {
            return known;
        }
        String text = what + " failed: " + failure.getMessage();
        if (failure instanceof RpcException rpc && rpc.isNotFound()) {
            return new RemoteResourceNotFoundException(text, failure);
        }
        return new RemoteStorageException(text, failure);
    }
}
