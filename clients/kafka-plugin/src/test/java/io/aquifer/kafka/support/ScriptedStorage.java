package io.aquifer.kafka.support;

import aquifer.storage.v1.RemoteStorageServiceGrpc.RemoteStorageServiceImplBase;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.CopyLogSegmentDataResponse;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.DeleteLogSegmentDataRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.DeleteLogSegmentDataResponse;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchLogSegmentRequest;
import aquifer.storage.v1.RemoteStorageServiceOuterClass.FetchLogSegmentResponse;
import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Attributes;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerTransportFilter;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;
import java.util.zip.CRC32C;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;

/** A storage service that does what a test says: it fails first as often as told, sends a given log, breaks or stalls in the middle. */
public final class ScriptedStorage extends RemoteStorageServiceImplBase implements AutoCloseable {
    private static final int PIECE_BYTES = 64 * 1024;

    /** What the next calls fail with, one each. */
    public final Queue<StatusRuntimeException> failures = new ConcurrentLinkedQueue<>();
    /** First positions of fetches. */
    public final List<Long> fetchedFrom = new CopyOnWriteArrayList<>();
    /** Counted down when a caller went away. */
    public final CountDownLatch cancelled = new CountDownLatch(1);
    /** Counted down when a call has arrived. */
    public final CountDownLatch arrived = new CountDownLatch(1);
    /** Headers of all calls. */
    public final List<Metadata> headers = new CopyOnWriteArrayList<>();
    /** Number of deletions and copies that arrived. */
    public final List<String> calls = new CopyOnWriteArrayList<>();
    /** Names in the certificates of callers, of all calls; none on plaintext. */
    public final List<String> peers = new CopyOnWriteArrayList<>();
    /** Connections that are open. */
    public final AtomicInteger connections = new AtomicInteger();
    /** Pieces sent in all. */
    public volatile int piecesSent;
    /** Break the stream once after so many pieces; 0: never. */
    public volatile int breakAfterPieces;
    /** What the stream breaks with; null: as if the service went away. */
    public volatile StatusRuntimeException breaking;
    /** Answer nothing. */
    public volatile boolean silent;
    /** Damage every piece. */
    public volatile boolean damaging;

    private final byte[] log;
    private final Server server;

    /** A service on plaintext. */
    public ScriptedStorage(byte[] log) throws IOException {
        this(log, builder -> builder);
    }

    /** A service with a further setting, TLS for one. */
    public ScriptedStorage(byte[] log, UnaryOperator<NettyServerBuilder> with) throws IOException {
        this.log = log;
        NettyServerBuilder builder = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                .addService(this).intercept(new Recorder()).addTransportFilter(new ServerTransportFilter() {
                    @Override
                    public Attributes transportReady(Attributes attributes) {
                        connections.incrementAndGet();
                        return attributes;
                    }

                    @Override
                    public void transportTerminated(Attributes attributes) {
                        connections.decrementAndGet();
                    }
                });
        server = with.apply(builder).build().start();
    }

    /** Where it listens. */
    public String address() {
        return "127.0.0.1:" + server.getPort();
    }

    /** An error as the services send it. */
    public static StatusRuntimeException error(Code code, String reason, Long retryAfterMs) {
        com.google.rpc.Status.Builder status = com.google.rpc.Status.newBuilder().setCode(code.value()).setMessage("scripted")
                .addDetails(Any.pack(ErrorInfo.newBuilder().setDomain("aquifer").setReason(reason).build()));
        if (retryAfterMs != null) {
            Duration delay = Duration.newBuilder().setSeconds(retryAfterMs / 1000).setNanos((int) (retryAfterMs % 1000) * 1_000_000).build();
            status.addDetails(Any.pack(RetryInfo.newBuilder().setRetryDelay(delay).build()));
        }
        return StatusProto.toStatusRuntimeException(status.build());
    }

    @Override
    public void deleteLogSegmentData(DeleteLogSegmentDataRequest request, StreamObserver<DeleteLogSegmentDataResponse> observer) {
        calls.add("delete");
        noteCancel(observer);
        StatusRuntimeException failure = failures.poll();
        if (failure != null) {
            observer.onError(failure);
        } else if (!silent) {
            observer.onNext(DeleteLogSegmentDataResponse.getDefaultInstance());
            observer.onCompleted();
        }
    }

    @Override
    public StreamObserver<CopyLogSegmentDataRequest> copyLogSegmentData(StreamObserver<CopyLogSegmentDataResponse> observer) {
        calls.add("copy");
        noteCancel(observer);
        StatusRuntimeException failure = failures.poll();
        return new StreamObserver<>() {
            @Override
            public void onNext(CopyLogSegmentDataRequest message) {
                if (failure != null && message.hasSpec()) {
                    observer.onError(failure);
                } else if (failure == null && message.hasFinish() && !silent) {
                    observer.onNext(CopyLogSegmentDataResponse.getDefaultInstance());
                    observer.onCompleted();
                }
            }

            @Override
            public void onError(Throwable error) {
                cancelled.countDown();
            }

            @Override
            public void onCompleted() {
                // The answer went with the last message.
            }
        };
    }

    @Override
    public void fetchLogSegment(FetchLogSegmentRequest request, StreamObserver<FetchLogSegmentResponse> observer) {
        fetchedFrom.add(request.getStartPosition());
        noteCancel(observer);
        StatusRuntimeException failure = failures.poll();
        if (failure != null) {
            observer.onError(failure);
        } else if (!silent) {
            Sender sender = new Sender((ServerCallStreamObserver<FetchLogSegmentResponse>) observer, (int) request.getStartPosition());
            sender.observer.setOnReadyHandler(sender::send);
        }
    }

    @Override
    public void close() {
        server.shutdownNow();
    }

    private void noteCancel(StreamObserver<?> observer) {
        ((ServerCallStreamObserver<?>) observer).setOnCancelHandler(cancelled::countDown);
        arrived.countDown();
    }

    /** Sends as much as the reader takes. */
    private final class Sender {
        private final ServerCallStreamObserver<FetchLogSegmentResponse> observer;
        private int position;
        private int sent;
        private boolean done;

        Sender(ServerCallStreamObserver<FetchLogSegmentResponse> observer, int position) {
            this.observer = observer;
            this.position = position;
        }

        synchronized void send() {
            while (!done && observer.isReady()) {
                if (position >= log.length) {
                    done = true;
                    observer.onCompleted();
                } else if (breakAfterPieces > 0 && sent == breakAfterPieces) {
                    done = true;
                    breakAfterPieces = 0;
                    observer.onError(breaking != null ? breaking : error(Code.UNAVAILABLE, "NOT_READY", null));
                } else {
                    byte[] data = Arrays.copyOfRange(log, position, Math.min(log.length, position + PIECE_BYTES));
                    CRC32C crc = new CRC32C();
                    crc.update(data);
                    observer.onNext(FetchLogSegmentResponse.newBuilder().setPosition(position).setData(ByteString.copyFrom(data))
                            .setCrc32C((int) crc.getValue() + (damaging ? 1 : 0)).build());
                    position += data.length;
                    sent++;
                    piecesSent++;
                }
            }
        }
    }

    private final class Recorder implements ServerInterceptor {
        @Override
        public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata given, ServerCallHandler<Q, A> next) {
            headers.add(given);
            SSLSession session = call.getAttributes().get(Grpc.TRANSPORT_ATTR_SSL_SESSION);
            if (session != null) {
                peers.add(nameOf(session));
            }
            return next.startCall(call, given);
        }

        private static String nameOf(SSLSession session) {
            try {
                return session.getPeerPrincipal().getName();
            } catch (SSLPeerUnverifiedException error) {
                return "nobody";
            }
        }
    }
}
