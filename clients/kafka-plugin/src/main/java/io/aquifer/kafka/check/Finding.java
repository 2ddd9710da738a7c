package io.aquifer.kafka.check;

/**
 * What a check found.
 *
 * @param isProblem whether the broker would not work so.
 * @param text one line for people.
 */
record Finding(boolean isProblem, String text) {
    static Finding ok(String text) {
        return new Finding(false, text);
    }

    static Finding problem(String text) {
        return new Finding(true, text);
    }

    String line() {
        return (isProblem ? "problem: " : "ok: ") + text.replaceAll("\\s+", " ");
    }
}
