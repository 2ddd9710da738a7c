package io.aquifer.kafka.rpc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Optional;

/** A call that failed, decoded: gRPC's code, the reason of {@code aquifer.errors.v1}, and when the service wants to be asked again. */
public final class RpcException extends Exception {
    private static final long serialVersionUID = 1L;
    private static final String DOMAIN = "aquifer";
    private static final String PEER_UNAVAILABLE = "PEER_UNAVAILABLE";

    private final Code code;
    private final String reason;
    private final transient Duration retryAfter;
    private final boolean repeatable;

    private RpcException(Code code, String reason, String message, Duration retryAfter, Throwable cause) {
        this(code + " (" + reason + "): " + message, code, reason, retryAfter, true, cause);
    }

    private RpcException(String message, Code code, String reason, Duration retryAfter, boolean repeatable, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.reason = reason;
        this.retryAfter = retryAfter;
        this.repeatable = repeatable;
    }

    /** Decodes what a stub threw. */
    public static RpcException of(Throwable failure) {
        if (failure instanceof RpcException known) {
            return known;
        }
        Status status = Status.fromThrowable(failure);
        com.google.rpc.Status details = StatusProto.fromThrowable(failure);
        String reason = bareReason(status);
        Duration retryAfter = null;
        if (details != null) {
            for (Any detail : details.getDetailsList()) {
                ErrorInfo info = unpacked(detail, ErrorInfo.class);
                reason = info != null && info.getDomain().equals(DOMAIN) ? info.getReason() : reason;
                RetryInfo retry = unpacked(detail, RetryInfo.class);
                retryAfter = retry != null ? duration(retry.getRetryDelay()) : retryAfter;
            }
        }
        return new RpcException(status.getCode(), reason, text(status), retryAfter, failure);
    }

    /** The calling thread was interrupted; its interrupt flag is set again by whoever makes this. */
    static RpcException interrupted(InterruptedException cause) {
        return new RpcException(Code.CANCELLED, "INTERRUPTED", "the calling thread was interrupted", null, cause);
    }

    /** Nothing moved for too long. */
    public static RpcException stalled(Duration waited, Throwable cause) {
        String text = "the service did not go on for " + waited.toMillis() + " ms";
        return new RpcException(Code.UNAVAILABLE, PEER_UNAVAILABLE, text, null, cause);
    }

    /** Received bytes are not what was sent. */
    public static RpcException damaged(String complaint) {
        return new RpcException(Code.DATA_LOSS, "CHECKSUM_MISMATCH", complaint, null, null);
    }

    /** The time for all attempts is over; the last failure is the cause. */
    static RpcException outOfTime(Throwable last) {
        return new RpcException(Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "no time was left for another attempt", null, last);
    }

    /** The same, for an operation that must not be repeated after what the service has seen of it. */
    public RpcException unrepeatable() {
        return new RpcException(getMessage(), code, reason, retryAfter, false, this);
    }

    /** Whether a repetition may be thought of at all. */
    boolean isRepeatable() {
        return repeatable;
    }

    /** gRPC's code. */
    public Code code() {
        return code;
    }

    /** The reason in {@code aquifer.errors.v1}, or a bare one for what gRPC itself reports. */
    public String reason() {
        return reason;
    }

    /** How long the service wants to be left alone; empty when it did not say. */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retryAfter);
    }

    /** Whether the endpoint did not answer, as opposed to answering with an error. */
    public boolean isEndpointDown() {
        return reason.equals(PEER_UNAVAILABLE) || reason.equals("NOT_READY");
    }

    /** Whether the service refused before it did anything. */
    public boolean isRefusal() {
        return reason.equals("NOT_READY") || reason.equals("COPY_QUOTA");
    }

    /** Whether the service says that the thing asked for is not there; what stands between may say the same of a route. */
    public boolean isNotFound() {
        return code == Code.NOT_FOUND && !reason.equals(code.name());
    }

    private static String bareReason(Status status) {
        String description = status.getDescription() == null ? "" : status.getDescription();
        boolean cut = status.getCode() == Code.INTERNAL && description.contains("RST_STREAM");
        return status.getCode() == Code.UNAVAILABLE || cut ? PEER_UNAVAILABLE : status.getCode().name();
    }

    private static String text(Status status) {
        String text = status.getDescription() == null ? "no details" : status.getDescription();
        return status.getCause() == null ? text : text + " (" + status.getCause().getMessage() + ")";
    }

    private static Duration duration(com.google.protobuf.Duration value) {
        return Duration.ofSeconds(value.getSeconds(), value.getNanos());
    }

    private static <T extends com.google.protobuf.Message> T unpacked(Any detail, Class<T> type) {
        try {
            return detail.is(type) ? detail.unpack(type) : null;
        } catch (InvalidProtocolBufferException error) {
            return null;
        }
    }
}
