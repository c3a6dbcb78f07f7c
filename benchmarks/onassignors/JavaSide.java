import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.BufferedInputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Kafka's assignors, timed: the Java side of benchmarks/assignors.py.
 *
 * Each line of standard input asks for so many runs of one assignor on one case ("assignor runs
 * path"); the answer is one line of JSON, an object for every run. The parts that are timed, and
 * what a case's file holds, are those of side.py beside this file.
 */
public final class JavaSide {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final Map<String, ByteBuffer> joined = new HashMap<>();
    private Cluster cluster;

    private JavaSide(String path) throws Exception {
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(new FileInputStream(path)))) {
            Node node = new Node(1, "localhost", 9092);
            Node[] replicas = {node};
            List<PartitionInfo> partitions = new ArrayList<>();
            for (int topics = in.readInt(); topics > 0; topics--) {
                String topic = in.readUTF();
                int count = in.readInt();
                for (int number = 0; number < count; number++) {
                    partitions.add(new PartitionInfo(topic, number, node, replicas, replicas));
                }
            }
            cluster = new Cluster("benchmark", List.of(node), partitions, Set.of(), Set.of());
            for (int members = in.readInt(); members > 0; members--) {
                String id = in.readUTF();
                joined.put(id, ByteBuffer.wrap(in.readNBytes(in.readInt())));
            }
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    /** Decode, assign and encode once; the times of each, and how much was given. */
    private String run(String name) {
        ConsumerPartitionAssignor assignor = assignor(name);
        System.gc();
        Lap lap = new Lap();
        Map<String, Subscription> members = new HashMap<>();
        joined.forEach(
            (id, data) ->
                members.put(id, ConsumerProtocol.deserializeSubscription(data.duplicate())));
        lap.end("decode");
        Map<String, Assignment> given =
            assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        lap.end("assign");
        long bytes = 0;
        for (Assignment assignment : given.values()) {
            bytes += ConsumerProtocol.serializeAssignment(assignment).remaining();
        }
        lap.end("encode");
        long total = 0;
        long least = Long.MAX_VALUE;
        long most = 0;
        for (Assignment assignment : given.values()) {
            int count = assignment.partitions().size();
            total += count;
            least = Math.min(least, count);
            most = Math.max(most, count);
        }
        return String.format(
            Locale.ROOT,
            "{%s\"given\": [%d, %d, %d], \"bytes\": %d}",
            lap.timings, total, least, most, bytes);
    }

    /** Times one part after the other. */
    private static final class Lap {
        private final StringBuilder timings = new StringBuilder();
        private long wall = System.nanoTime();
        private long cpu = THREADS.getCurrentThreadCpuTime();

        private void end(String part) {
            long wallNow = System.nanoTime();
            long cpuNow = THREADS.getCurrentThreadCpuTime();
            timings.append(
                String.format(
                    Locale.ROOT,
                    "\"%s\": {\"wall\": %.6f, \"cpu\": %.6f}, ",
                    part, (wallNow - wall) / 1e9, (cpuNow - cpu) / 1e9));
            wall = System.nanoTime();
            cpu = THREADS.getCurrentThreadCpuTime();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        String loaded = null;
        JavaSide side = null;
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.split(" ", 3);
            if (!words[2].equals(loaded)) {
                side = null;
                side = new JavaSide(words[2]);
                loaded = words[2];
            }
            List<String> runs = new ArrayList<>();
            for (int run = Integer.parseInt(words[1]); run > 0; run--) {
                runs.add(side.run(words[0]));
            }
            System.out.println("[" + String.join(", ", runs) + "]");
        }
    }
}
