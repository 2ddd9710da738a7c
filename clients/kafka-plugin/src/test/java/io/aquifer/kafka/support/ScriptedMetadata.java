package io.aquifer.kafka.support;

import aquifer.common.v1.Segment;
import aquifer.metadata.v1.RemoteLogMetadataServiceGrpc.RemoteLogMetadataServiceImplBase;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.AddRemoteLogSegmentMetadataRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.AddRemoteLogSegmentMetadataResponse;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.ListRemoteLogSegmentsRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.ListRemoteLogSegmentsResponse;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.WatchPartitionRequest;
import aquifer.metadata.v1.RemoteLogMetadataServiceOuterClass.WatchPartitionResponse;
import io.aquifer.kafka.convert.Segments;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** A metadata service of one partition that forgets its history when a test says so, and can hold back what a watch is to get. */
public final class ScriptedMetadata extends RemoteLogMetadataServiceImplBase implements AutoCloseable {
    private final NavigableMap<Long, Segment.RemoteLogSegmentMetadata> present = new TreeMap<>();
    private final List<Long> watchedFrom = new ArrayList<>();
    private final Server server;
    private StreamObserver<WatchPartitionResponse> watch;
    private long sent;
    private final Set<String> failingTopics = new HashSet<>();
    private long historyFrom;
    private long heldBackFrom = Long.MAX_VALUE;
    private int listings;
    private int writes;

    /** A service that knows nothing yet. */
    public ScriptedMetadata() throws IOException {
        server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)).addService(this).build().start();
    }

    /** Where it listens. */
    public String address() {
        return "127.0.0.1:" + server.getPort();
    }

    /** Adds a change that brokers of this version do not understand: a segment without a state. */
    public synchronized void putNonsense(long version, RemoteLogSegmentMetadata segment) {
        present.put(version, Segments.toProto(segment).toBuilder().clearState().build());
        send();
    }

    /** Adds a segment with the version of its change; a watch learns of it. */
    public synchronized void put(long version, RemoteLogSegmentMetadata segment) {
        present.put(version, Segments.toProto(segment));
        send();
    }

    /** Removes what changed at a version, together with every change up to another one; no watch learns of it. */
    public synchronized void forget(long version, long upTo) {
        present.remove(version);
        historyFrom = upTo;
    }

    /** Keeps changes from a version on from watches; listings have them all the same. */
    public synchronized void holdBackFrom(long version) {
        heldBackFrom = version;
    }

    /** Sends what was held back. */
    public synchronized void release() {
        heldBackFrom = Long.MAX_VALUE;
        send();
    }

    /** Breaks the watch. */
    public synchronized void breakWatch() {
        watch.onError(Status.UNAVAILABLE.withDescription("scripted").asRuntimeException());
        watch = null;
    }

    /** Versions from which the partition was watched. */
    public synchronized List<Long> watchedFrom() {
        return List.copyOf(watchedFrom);
    }

    /** Fails every listing of a topic's partitions. */
    public synchronized void failListingsOf(String topic) {
        failingTopics.add(topic);
    }

    /** Number of writes that arrived; none is answered. */
    public synchronized int writes() {
        return writes;
    }

    /** Number of listings. */
    public synchronized int listings() {
        return listings;
    }

    @Override
    public synchronized void watchPartition(WatchPartitionRequest request, StreamObserver<WatchPartitionResponse> observer) {
        long from = request.getFromVersion();
        watchedFrom.add(from);
        if (0 < from && from < historyFrom) {
            observer.onError(ScriptedStorage.error(Status.Code.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", null));
            return;
        }
        watch = observer;
        sent = from;
        send();
    }

    @Override
    public synchronized void listRemoteLogSegments(
            ListRemoteLogSegmentsRequest request, StreamObserver<ListRemoteLogSegmentsResponse> observer) {
        listings++;
        if (failingTopics.contains(request.getTopicIdPartition().getTopic())) {
            observer.onError(ScriptedStorage.error(Status.Code.INTERNAL, "INTERNAL", null));
            return;
        }
        observer.onNext(ListRemoteLogSegmentsResponse.newBuilder().addAllSegments(present.values()).build());
        observer.onCompleted();
    }

    @Override
    public synchronized void addRemoteLogSegmentMetadata(
            AddRemoteLogSegmentMetadataRequest request, StreamObserver<AddRemoteLogSegmentMetadataResponse> observer) {
        writes++;
    }

    @Override
    public void close() {
        server.shutdownNow();
    }

    private void send() {
        if (watch == null) {
            return;
        }
        present.subMap(sent, false, heldBackFrom, false).forEach((version, segment) -> {
            watch.onNext(WatchPartitionResponse.newBuilder().setVersion(version).setSegment(segment).build());
            sent = version;
        });
    }
}
