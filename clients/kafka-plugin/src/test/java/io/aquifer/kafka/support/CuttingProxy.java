package io.aquifer.kafka.support;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A TCP proxy in front of a service, whose connections a test can cut. */
public final class CuttingProxy implements AutoCloseable {
    private final ServerSocket listener;
    private final InetSocketAddress target;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private volatile boolean refusing;

    /** A proxy to {@code host:port}. */
    public CuttingProxy(String address) throws IOException {
        int colon = address.lastIndexOf(':');
        target = new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    /** Where it listens. */
    public String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** Cuts every connection and takes no new one. */
    public void cut() {
        refusing = true;
        open.forEach(CuttingProxy::shut);
    }

    /** Takes connections again. */
    public void mend() {
        refusing = false;
    }

    @Override
    public void close() throws IOException {
        listener.close();
        open.forEach(CuttingProxy::shut);
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket near = listener.accept();
                Socket far = new Socket();
                open.add(near);
                open.add(far);
                if (refusing) {
                    shut(near);
                    continue;
                }
                far.connect(target);
                start(() -> copy(near, far));
                start(() -> copy(far, near));
                if (refusing) {
                    shut(near);
                    shut(far);
                }
            } catch (IOException error) {
                // Closed, or the service is not there: the caller sees a cut connection.
            }
        }
    }

    private void copy(Socket from, Socket to) {
        try {
            InputStream input = from.getInputStream();
            input.transferTo(to.getOutputStream());
        } catch (IOException error) {
            // Cut.
        } finally {
            shut(from);
            shut(to);
            open.remove(from);
            open.remove(to);
        }
    }

    private static void shut(Socket socket) {
        try {
            socket.close();
        } catch (IOException error) {
            // Closed already.
        }
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "cutting-proxy");
        thread.setDaemon(true);
        thread.start();
    }
}
