import java.io.BufferedWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;

/** What the Java clients share: the job, and the sinks of ../sinks.py. */
final class Worker {
    /** Takes a batch that has been processed. */
    interface Sink {
        void note(ConsumerRecords<byte[], byte[]> records) throws Exception;

        /** The members have returned. */
        void close() throws Exception;
    }

    /** Runs one member of a group until the worker has ended. */
    interface Client {
        void run(Worker worker, String group) throws Exception;
    }

    private final Map<String, String> job = new HashMap<>();
    private final List<Runnable> whenEnded = new ArrayList<>();
    private boolean ended;
    private Sink sink;

    private Worker(String[] arguments) {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            job.put(pair[0], pair[1]);
        }
    }

    String text(String name) {
        return job.get(name);
    }

    int number(String name) {
        return Integer.parseInt(job.get(name));
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(job.get(name));
    }

    int milliseconds(String name) {
        return (int) (Double.parseDouble(job.get(name)) * 1000);
    }

    synchronized boolean hasEnded() {
        return ended;
    }

    /** Ends the worker; any thread may call this. */
    void end() {
        List<Runnable> callbacks;
        synchronized (this) {
            ended = true;
            callbacks = new ArrayList<>(whenEnded);
        }
        callbacks.forEach(Runnable::run);
    }

    /** Calls this when the worker ends. */
    void whenEnded(Runnable callback) {
        synchronized (this) {
            whenEnded.add(callback);
        }
        if (hasEnded()) {
            callback.run();
        }
    }

    /** Works as long as the job says, and hands the batch to the sink. */
    void process(ConsumerRecords<byte[], byte[]> records) throws Exception {
        Thread.sleep(milliseconds("work"));
        synchronized (this) {
            sink.note(records);
        }
    }

    static void main(String[] arguments, Client client) throws Exception {
        Worker job = new Worker(arguments);
        CountDownLatch closed = new CountDownLatch(1);
        Worker[] current = {job};
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            current[0].end();
            try {
                closed.await();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }));
        int status = 0;
        try {
            for (int round = 0; round < job.number("rounds"); round++) {
                Worker worker = new Worker(arguments);
                if (job.number("rounds") > 1) {
                    worker.job.put("group", job.text("group") + "-" + round);
                }
                current[0] = worker;
                worker.run(client);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        closed.countDown();
        Runtime.getRuntime().halt(status);
    }

    private void run(Client client) throws Exception {
        sink = sink();
        List<Thread> threads = new ArrayList<>();
        Throwable[] failed = new Throwable[1];
        for (int number = 0; number < number("members"); number++) {
            String group = text("group") + (number("members") > 1 ? "-" + number : "");
            Thread thread = new Thread(() -> {
                try {
                    client.run(this, group);
                } catch (Throwable error) {
                    failed[0] = error;
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        sink.close();
    }

    /** The machine's monotonic clock, as Python's time.monotonic. */
    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private Sink sink() throws Exception {
        switch (text("sink")) {
            case "journal":
                return new Journal(Path.of(text("journal")));
            case "meter":
                return new Meter(this);
            default:
                return new First(this);
        }
    }

    private static void append(Path path, String line) throws Exception {
        Files.writeString(path, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static final class Journal implements Sink {
        private final BufferedWriter file;

        Journal(Path path) throws Exception {
            file = Files.newBufferedWriter(
                    path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }

        @Override
        public void note(ConsumerRecords<byte[], byte[]> records) throws Exception {
            double done = now();
            StringBuilder lines = new StringBuilder();
            for (ConsumerRecord<byte[], byte[]> one : records) {
                String value = new String(one.value(), StandardCharsets.UTF_8);
                lines.append(one.partition()).append(' ').append(one.offset()).append(' ');
                lines.append(value).append(' ').append(done).append('\n');
            }
            file.append(lines);
            file.flush();
        }

        @Override
        public void close() throws Exception {
            file.close();
        }
    }

    private static final class Meter implements Sink {
        private final Worker worker;
        private long got;
        private long early;
        private long sum;
        private double began;
        private double ended;
        private double cpuBegan;
        private double cpuEnded;

        Meter(Worker worker) {
            this.worker = worker;
        }

        @Override
        public void note(ConsumerRecords<byte[], byte[]> records) {
            if (worker.flag("each")) {
                for (ConsumerRecord<byte[], byte[]> one : records) {
                    sum += one.offset() + one.value().length;
                }
            }
            if (got == 0) {
                began = now();
                cpuBegan = cpu();
                early = records.count();
            }
            if (got < worker.number("records")) {
                got += records.count();
                ended = now();
                cpuEnded = cpu();
            }
            if (got >= worker.number("records")) {
                worker.end();
            }
        }

        @Override
        public void close() throws Exception {
            double records = got - early;
            double rate = records / (ended - began);
            double cpu = (cpuEnded - cpuBegan) / records * 1e9;
            String found = String.format(Locale.ROOT, "{\"rate\": %f, \"cpu\": %f}", rate, cpu);
            Files.writeString(Path.of(worker.text("journal")), found);
        }

        private static double cpu() {
            return ((com.sun.management.OperatingSystemMXBean)
                            ManagementFactory.getOperatingSystemMXBean())
                    .getProcessCpuTime() / 1e9;
        }
    }

    private static final class First implements Sink {
        private final Worker worker;
        private final double began = now();
        private double first;

        First(Worker worker) {
            this.worker = worker;
        }

        @Override
        public void note(ConsumerRecords<byte[], byte[]> records) {
            if (first == 0) {
                first = now();
                worker.end();
            }
        }

        @Override
        public void close() throws Exception {
            if (first != 0) {
                String line = String.format(Locale.ROOT, "%f %f%n", first - began, now() - first);
                append(Path.of(worker.text("journal")), line);
            }
        }
    }
}
