package io.aquifer.kafka.support;

import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;

/** Waits for something to become true. */
public final class Eventually {
    private static final long LONGEST_S = 60;

    private Eventually() {
    }

    /** Asks again and again until the answer is yes; fails after a minute. */
    public static void eventually(String what, Callable<Boolean> check) throws Exception {
        long ends = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_S);
        while (!check.call()) {
            if (System.nanoTime() > ends) {
                throw new AssertionError("not within " + LONGEST_S + " s: " + what);
            }
            TimeUnit.MILLISECONDS.sleep(10);
        }
    }
}
