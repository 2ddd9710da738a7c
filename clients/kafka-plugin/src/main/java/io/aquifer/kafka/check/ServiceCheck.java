package io.aquifer.kafka.check;

import aquifer.common.v1.Partition.TopicIdPartition;
import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.IsReadyRequest;
import aquifer.storage.v1.RemoteStorageServiceGrpc;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.GetCapabilitiesRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.GetCapabilitiesResponse;
import io.aquifer.kafka.config.Role;
import io.aquifer.kafka.config.Settings;
import io.aquifer.kafka.rpc.Endpoint;
import io.aquifer.kafka.rpc.Endpoints;
import io.aquifer.kafka.rpc.RpcException;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/** Whether every endpoint of a manager answers. */
final class ServiceCheck {
    private static final long DEADLINE_S = 10;
    private static final String NOBODY = "AAAAAAAAAAAAAAAAAAAAAQ";
    private static final String SEGMENT_BYTES = "log.segment.bytes";
    private static final long DEFAULT_SEGMENT_BYTES = 1L << 30;

    private ServiceCheck() {
    }

    static List<Finding> check(Settings settings, Properties properties) {
        List<Finding> findings = new ArrayList<>();
        try (Endpoints endpoints = Endpoints.open(settings)) {
            for (Endpoint endpoint : endpoints.all()) {
                try {
                    findings.add(settings.role() == Role.STORAGE ? storage(endpoint, properties) : metadata(endpoint));
                } catch (StatusRuntimeException error) {
                    String name = settings.role().endpoints().key();
                    findings.add(Finding.problem(name + ": " + endpoint + " does not answer as it should: "
                            + RpcException.of(error).getMessage()));
                }
            }
        }
        return findings;
    }

    private static Finding storage(Endpoint endpoint, Properties properties) {
        GetCapabilitiesResponse answer = RemoteStorageServiceGrpc.newBlockingStub(endpoint.channel())
                .withDeadlineAfter(DEADLINE_S, TimeUnit.SECONDS)
                .getCapabilities(GetCapabilitiesRequest.getDefaultInstance());
        String given = properties.getProperty(SEGMENT_BYTES, String.valueOf(DEFAULT_SEGMENT_BYTES)).strip();
        if (given.matches("\\d{1,10}") && Long.parseLong(given) > answer.getMaxSegmentBytes()) {
            return Finding.problem(SEGMENT_BYTES + "=" + given + ": the storage service at " + endpoint + " takes segments of "
                    + answer.getMaxSegmentBytes() + " bytes at most");
        }
        return Finding.ok("storage at " + endpoint + " answers: version " + answer.getVersion() + ", " + answer.getBackend()
                + ", compression " + answer.getCompression() + ", encryption " + answer.getEncryption());
    }

    private static Finding metadata(Endpoint endpoint) {
        TopicIdPartition partition = TopicIdPartition.newBuilder().setTopicId(NOBODY).setTopic("preflight").build();
        boolean ready = RemoteLogMetadataServiceGrpc.newBlockingStub(endpoint.channel())
                .withDeadlineAfter(DEADLINE_S, TimeUnit.SECONDS)
                .isReady(IsReadyRequest.newBuilder().setTopicIdPartition(partition).build())
                .getReady();
        return ready ? Finding.ok("metadata at " + endpoint + " answers")
                : Finding.problem("metadata at " + endpoint + " answers but cannot read its database");
    }
}
