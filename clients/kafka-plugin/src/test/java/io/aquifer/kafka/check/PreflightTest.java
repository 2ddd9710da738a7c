package io.aquifer.kafka.check;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarOutputStream;
import java.util.zip.ZipEntry;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PreflightTest {
    @TempDir
    Path folder;

    private final Map<String, String> properties = new TreeMap<>();

    @BeforeEach
    void wellConfigured() throws IOException {
        Path jar = folder.resolve("plugin.jar");
        try (JarOutputStream output = new JarOutputStream(Files.newOutputStream(jar))) {
            output.putNextEntry(new ZipEntry("io/aquifer/kafka/GrpcRemoteStorageManager.class"));
            output.putNextEntry(new ZipEntry("io/aquifer/kafka/GrpcRemoteLogMetadataManager.class"));
        }
        properties.put("remote.log.storage.system.enable", "true");
        properties.put("remote.log.storage.manager.class.name", "io.aquifer.kafka.GrpcRemoteStorageManager");
        properties.put("remote.log.storage.manager.class.path", jar.toString());
        properties.put("rsm.config.aquifer.storage.endpoints", "storage:7100");
        properties.put("remote.log.metadata.manager.class.name", "io.aquifer.kafka.GrpcRemoteLogMetadataManager");
        properties.put("remote.log.metadata.manager.class.path", folder + "/*");
        properties.put("rlmm.config.aquifer.metadata.endpoints", "metadata-1:7200,metadata-2:7200");
    }

    @Test
    void whatIsWellConfiguredPasses() throws Exception {
        List<String> lines = new ArrayList<>();
        assertEquals(0, run(lines, "--offline"));
        assertTrue(lines.stream().allMatch(each -> each.startsWith("ok: ")), lines.toString());
    }

    @Test
    void anotherPrefixIsFollowed() throws Exception {
        properties.put("remote.log.storage.manager.impl.prefix", "tier.");
        properties.put("tier.aquifer.storage.endpoints", properties.remove("rsm.config.aquifer.storage.endpoints"));
        assertEquals(0, run(new ArrayList<>(), "--offline"));
    }

    @Test
    void theSwitchIsReadAsKafkaReadsIt() throws Exception {
        properties.put("remote.log.storage.system.enable", "True");
        assertEquals(0, run(new ArrayList<>(), "--offline"));
    }

    @Test
    void theFileIsReadAsKafkaReadsItInLatin1() throws Exception {
        properties.put("log.dirs", "/data/k\u00fche");
        assertEquals(0, run(new ArrayList<>(), "--offline"));
    }

    @Test
    void theSwitchIsMissed() throws Exception {
        properties.remove("remote.log.storage.system.enable");
        assertOneProblem("remote.log.storage.system.enable=false: tiering is off; set it to true");
    }

    @Test
    void missingEndpointsAreNamedWithTheirPrefix() throws Exception {
        properties.remove("rsm.config.aquifer.storage.endpoints");
        assertOneProblem("rsm.config.aquifer.storage.endpoints is missing; give host:port, or several separated by commas");
    }

    @Test
    void anUnknownPropertyIsNamedWithItsPrefix() throws Exception {
        properties.put("rlmm.config.aquifer.metadata.endpoint", "metadata:7200");
        assertOneProblem("rlmm.config.aquifer.metadata.endpoint is not known; remove it or correct its name");
    }

    @Test
    void aClassPathThatLeadsNowhereIsFound() throws Exception {
        properties.put("remote.log.storage.manager.class.path", folder + "/elsewhere/*");
        assertOneProblem("remote.log.storage.manager.class.path=" + folder + "/elsewhere/* leads to no jar with "
                + "io.aquifer.kafka.GrpcRemoteStorageManager; name aquifer-kafka-plugin.jar, or its folder followed by /*");
    }

    @Test
    void anotherPluginIsFound() throws Exception {
        properties.put("remote.log.metadata.manager.class.name", "org.example.Other");
        assertOneProblem("remote.log.metadata.manager.class.name=org.example.Other is not this plugin; "
                + "set it to io.aquifer.kafka.GrpcRemoteLogMetadataManager");
    }

    @Test
    void tooSmallCustomMetadataIsFound() throws Exception {
        properties.put("remote.log.metadata.custom.metadata.max.bytes", "16");
        assertOneProblem("remote.log.metadata.custom.metadata.max.bytes=16: give 128 or more");
    }

    @Test
    void aServiceThatDoesNotAnswerIsNamedInOneLine() throws Exception {
        try (ServerSocket nobody = new ServerSocket(0)) {
            int port = nobody.getLocalPort();
            nobody.close();
            properties.put("rsm.config.aquifer.storage.endpoints", "127.0.0.1:" + port);
            properties.put("rlmm.config.aquifer.metadata.endpoints", "127.0.0.1:" + port);
            List<String> lines = new ArrayList<>();
            assertEquals(1, run(lines));
            assertEquals(2, lines.size(), lines.toString());
            assertTrue(lines.get(0).startsWith("problem: aquifer.storage.endpoints: 127.0.0.1:" + port + " does not answer"), lines.get(0));
            assertTrue(lines.get(1).startsWith("problem: aquifer.metadata.endpoints: 127.0.0.1:" + port + " does not answer"), lines.get(1));
        }
    }

    @Test
    void aFileThatIsNotThereIsOneLine() {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        String missing = folder.resolve("missing.properties").toString();
        assertEquals(1, Main.run(new String[] {"check", missing}, new PrintStream(output, true, StandardCharsets.UTF_8)));
        assertTrue(output.toString(StandardCharsets.UTF_8).startsWith("problem: " + missing + " cannot be read"));
    }

    @Test
    void argumentsThatMakeNoSenseShowTheUsage() {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        assertEquals(2, Main.run(new String[] {}, new PrintStream(output, true, StandardCharsets.UTF_8)));
        assertTrue(output.toString(StandardCharsets.UTF_8).startsWith("usage: "));
    }

    private void assertOneProblem(String expected) throws IOException {
        List<String> lines = new ArrayList<>();
        assertEquals(1, run(lines, "--offline"));
        assertEquals(List.of("problem: " + expected), lines.stream().filter(each -> each.startsWith("problem: ")).toList());
    }

    private int run(List<String> lines, String... options) throws IOException {
        List<String> text = properties.entrySet().stream().map(each -> each.getKey() + "=" + each.getValue()).toList();
        Path file = Files.write(folder.resolve("server.properties"), text, StandardCharsets.ISO_8859_1);
        List<String> arguments = new ArrayList<>(List.of("check", file.toString()));
        arguments.addAll(List.of(options));
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        int code = Main.run(arguments.toArray(String[]::new), new PrintStream(output, true, StandardCharsets.UTF_8));
        output.toString(StandardCharsets.UTF_8).lines().forEach(lines::add);
        return code;
    }
}
