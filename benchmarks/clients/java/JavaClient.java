import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer, as its Javadoc recommends: poll, process, commitSync; wakeup ends it.
 *
 * The first argument is the group protocol: classic, or consumer (KIP-848).
 */
public final class JavaClient {
    public static void main(String[] arguments) throws Exception {
        String protocol = arguments[0];
        String[] job = List.of(arguments).subList(1, arguments.length).toArray(new String[0]);
        Worker.main(job, (worker, group) -> member(worker, group, protocol));
    }

    private static void member(Worker worker, String group, String protocol) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", worker.text("servers"));
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        if (protocol.equals("classic") && worker.milliseconds("heartbeat") > 0) {
            settings.put("session.timeout.ms", worker.milliseconds("session"));
            settings.put("heartbeat.interval.ms", worker.milliseconds("heartbeat"));
        }
        if (worker.milliseconds("refresh") > 0) {
            settings.put("metadata.max.age.ms", worker.milliseconds("refresh"));
        }
        settings.put("max.poll.records", worker.number("batch"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(worker.text("topic")));
            worker.whenEnded(consumer::wakeup);
            while (!worker.hasEnded()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                worker.process(records);
                if (worker.flag("commit")) {
                    commit(consumer);
                }
            }
        } catch (WakeupException ended) {
            // The consumer is closed, which leaves the group.
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException refused) {
            System.err.println("commit refused: " + refused.getMessage());
        } catch (WakeupException ended) {
            consumer.commitSync();
            throw ended;
        }
    }
}
