package io.aquifer.kafka.metadata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The vectors of Kafka's RemoteLogLeaderEpochStateTest (K-2.2), and the rule behind them against a naive search. */
class EpochIndexTest {
    private final EpochIndex index = new EpochIndex();

    @Test
    void neighboursAnswerForTheirOffsets() {
        Uuid a = added(10, 100);
        Uuid b = added(101, 200);
        assertEquals(a, index.find(90));
        assertEquals(b, index.find(150));
        assertNull(index.find(9));
        assertNull(index.find(201));
        assertEquals(200, index.highest());
    }

    @Test
    void aLargerCopyDisplacesWhatItCovers() {
        added(10, 100);
        Uuid b = added(5, 150);
        assertEquals(b, index.find(11));
        added(148, 155);
        Uuid d = added(4, 200);
        assertEquals(d, index.find(11));
        assertEquals(d, index.find(150));
    }

    @Test
    void ofEqualCopiesTheLaterAnswers() {
        added(10, 100);
        Uuid b = added(10, 100);
        assertEquals(b, index.find(11));
    }

    @Test
    void aSmallerCopyDoesNotHideTheLarger() {
        Uuid a = added(0, 100);
        added(0, 50);
        added(20, 60);
        assertEquals(a, index.find(30));
        assertEquals(a, index.find(80));
    }

    @Test
    void whatWasCoveredAnswersAgainAfterADeletion() {
        Uuid a = added(10, 100);
        Uuid b = added(5, 150);
        index.remove(b);
        assertEquals(a, index.find(50));
        assertNull(index.find(120));
        assertEquals(150, index.highest());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void everyLookUpAgreesWithANaiveSearch(long seed) {
        Random random = new Random(seed);
        List<Copy> copies = new ArrayList<>();
        for (int step = 0; step < 200; step++) {
            if (!copies.isEmpty() && random.nextInt(3) == 0) {
                index.remove(copies.remove(random.nextInt(copies.size())).id());
            } else {
                long start = random.nextInt(40);
                long end = start + random.nextInt(20);
                copies.add(new Copy(added(start, end), start, end));
            }
            for (long offset = 0; offset < 60; offset++) {
                assertEquals(naive(copies, offset), index.find(offset), "step " + step + ", offset " + offset);
            }
        }
    }

    private record Copy(Uuid id, long start, long end) {
    }

    /** Of those that hold the offset the one that reaches furthest; of those the one that nothing covers. */
    private static Uuid naive(List<Copy> copies, long offset) {
        Copy best = null;
        for (Copy each : copies) {
            boolean holds = each.start() <= offset && offset <= each.end();
            if (holds && (best == null || each.end() > best.end()
                    || (each.end() == best.end() && each.start() <= best.start()))) {
                best = each;
            }
        }
        return best == null ? null : best.id();
    }

    private Uuid added(long start, long end) {
        Uuid id = Uuid.randomUuid();
        index.add(id, start, end);
        return id;
    }
}
