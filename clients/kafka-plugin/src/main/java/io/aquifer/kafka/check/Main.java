package io.aquifer.kafka.check;

import java.io.PrintStream;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** {@code java -jar aquifer-kafka-plugin.jar check server.properties [--offline]}: says what is missing or wrong, a line each. */
public final class Main {
    private static final String USAGE = "usage: java -jar aquifer-kafka-plugin.jar check server.properties [--offline]";
    private static final String OFFLINE = "--offline";

    private Main() {
    }

    /** Ends with 0 when all is well, 1 with problems, 2 when the arguments make no sense. */
    public static void main(String[] arguments) {
        System.exit(run(arguments, System.out));
    }

    static int run(String[] arguments, PrintStream out) {
        List<String> rest = Arrays.stream(arguments).filter(each -> !each.equals(OFFLINE)).toList();
        if (rest.size() != 2 || !rest.get(0).equals("check")) {
            out.println(USAGE);
            return 2;
        }
        List<Finding> findings = new Preflight(rest.size() == arguments.length).check(Path.of(rest.get(1)));
        findings.forEach(each -> out.println(each.line()));
        return findings.stream().anyMatch(Finding::isProblem) ? 1 : 0;
    }
}
