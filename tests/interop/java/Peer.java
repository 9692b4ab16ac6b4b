/*
 * The Java client as a peer of the interoperability tests: kafka-clients' producer, and its consumer with assign().
 * Called by judge/peers.py as `java Peer BOOTSTRAP`; jobs and answers as in rdk/rdk_peer.c.
 */
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String RECORD_SIZE_MAX = "11534336";
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> writers = new HashMap<>();

    private Peer(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private static byte[] bytes(JsonNode n) {
        return n == null || n.isNull() ? null : Base64.getDecoder().decode(n.asText());
    }

    private static String text(byte[] b) {
        return b == null ? null : Base64.getEncoder().encodeToString(b);
    }

    private Properties base(JsonNode job) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        if (job.has("conf")) {
            for (Map.Entry<String, JsonNode> e : job.get("conf").properties()) {
                p.put(e.getKey(), e.getValue().asText());
            }
        }
        return p;
    }

    private long produce(JsonNode job) throws Exception {
        Properties p = base(job);
        p.put("acks", Integer.toString(job.get("acks").asInt()));
        p.put("compression.type", job.get("codec").asText());
        p.put("enable.idempotence", Boolean.toString(job.get("idempotence").asBoolean()));
        p.put("max.request.size", RECORD_SIZE_MAX);
        p.put("buffer.memory", "67108864");
        p.put("linger.ms", "5");
        String topic = job.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
                BufferedReader in = Files.newBufferedReader(Path.of(job.get("file").asText()))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode r = JSON.readTree(line);
                List<Header> headers = new ArrayList<>();
                for (JsonNode h : r.get("headers")) {
                    headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1))));
                }
                sent.add(producer.send(new ProducerRecord<>(topic, r.get("partition").asInt(), r.get("timestamp").asLong(),
                        bytes(r.get("key")), bytes(r.get("value")), headers)));
            }
            producer.flush();
        }
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(job.get("out").asText()))) {
            for (int i = 0; i < sent.size(); i++) {
                RecordMetadata m = sent.get(i).get();
                out.write("{\"i\":" + i + ",\"partition\":" + m.partition() + ",\"offset\":" + m.offset() + "}\n");
            }
        }
        return sent.size();
    }

    /** Steps of several producers in their order: [who, action, partition, key, value]; who "" writes outside of transactions. The
     * producers stay, so that a later job can end what this one leaves open. */
    private long transact(JsonNode job) throws Exception {
        String topic = job.get("topic").asText();
        long sent = 0;
        for (JsonNode step : job.get("steps")) {
            String who = topic + "." + step.get(0).asText();
            KafkaProducer<byte[], byte[]> p = writers.get(who);
            if (p == null) {
                Properties conf = base(job);
                conf.put("compression.type", job.get("codec").asText());
                conf.put("linger.ms", "1000");
                conf.put("retry.backoff.ms", "10");   // a coordinator is often busy with what it has just ended
                if (!step.get(0).asText().isEmpty()) {
                    conf.put("transactional.id", who);
                }
                p = new KafkaProducer<>(conf, new ByteArraySerializer(), new ByteArraySerializer());
                writers.put(who, p);
                if (!step.get(0).asText().isEmpty()) {
                    p.initTransactions();
                }
            }
            switch (step.get(1).asText()) {
                case "begin" -> p.beginTransaction();
                case "commit" -> p.commitTransaction();
                case "abort" -> p.abortTransaction();
                case "flush" -> p.flush();
                case "send" -> {
                    p.send(new ProducerRecord<>(topic, step.get(2).asInt(), bytes(step.get(3)), bytes(step.get(4))));
                    sent++;
                }
                default -> throw new IllegalArgumentException("unknown step " + step);
            }
        }
        return sent;
    }

    /** The value of a load record, as in cpeer/job.c. */
    private static byte[] loadValue(long id) {
        byte[] head = String.format("%016x:", id).getBytes(StandardCharsets.US_ASCII);
        byte[] value = Arrays.copyOf(head, head.length + (int) Long.remainderUnsigned(id * 2654435761L, 900));
        for (int i = head.length; i < value.length; i++) {
            value[i] = (byte) ('a' + (id + i) % 26);
        }
        return value;
    }

    /** Numbered records at a rate until the next line comes; every report goes to the log. */
    private long load(JsonNode job, BufferedReader jobs, ObjectNode answer) throws Exception {
        Properties p = base(job);
        p.put("acks", Integer.toString(job.get("acks").asInt()));
        p.put("enable.idempotence", Boolean.toString(job.get("idempotence").asBoolean()));
        String topic = job.get("topic").asText();
        int partitions = job.get("partitions").asInt();
        long rate = job.get("rate").asLong();
        long[] reports = new long[2];   // acked, failed: of the producer's thread until it is closed
        long sent = 0;
        long start = System.nanoTime();
        try (BufferedWriter log = Files.newBufferedWriter(Path.of(job.get("log").asText()))) {
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
                while (!jobs.ready()) {
                    for (long due = (System.nanoTime() - start) / 1_000_000 * rate / 1000; sent < due && !jobs.ready(); sent++) {
                        long id = sent;
                        int partition = (int) (id % partitions);
                        producer.send(new ProducerRecord<>(topic, partition, null, loadValue(id)), (m, e) -> {
                            reports[e == null ? 0 : 1]++;
                            try {
                                log.write((e == null ? "ack " : "fail ") + partition + " " + (m == null ? -1 : m.offset()) + " " + id + "\n");
                            } catch (IOException io) {
                                throw new UncheckedIOException(io);
                            }
                        });
                    }
                    Thread.sleep(2);
                }
            }
        }
        answer.put("acked", reports[0]).put("failed", reports[1]);
        if (reports[0] + reports[1] != sent) {
            throw new IllegalStateException("not every record has its report");
        }
        return sent;
    }

    private static String line(ConsumerRecord<byte[], byte[]> r) throws IOException {
        ObjectNode n = JSON.createObjectNode();
        n.put("topic", r.topic()).put("partition", r.partition()).put("offset", r.offset()).put("timestamp", r.timestamp());
        n.put("key", text(r.key())).put("value", text(r.value()));
        ArrayNode headers = n.putArray("headers");
        for (Header h : r.headers()) {
            headers.addArray().add(h.key()).add(text(h.value()));
        }
        return JSON.writeValueAsString(n);
    }

    private long consume(JsonNode job) throws Exception {
        Properties p = base(job);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        p.put("fetch.max.wait.ms", "20");
        List<TopicPartition> parts = new ArrayList<>();
        for (Map.Entry<String, JsonNode> e : job.get("topics").properties()) {
            for (int i = 0; i < e.getValue().asInt(); i++) {
                parts.add(new TopicPartition(e.getKey(), i));
            }
        }
        long count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                BufferedWriter out = Files.newBufferedWriter(Path.of(job.get("out").asText()))) {
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            long quietEnd = System.nanoTime() + 30_000_000_000L;
            while (parts.stream().anyMatch(t -> consumer.position(t) < ends.get(t))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    out.write(line(r));
                    out.write('\n');
                    count++;
                    quietEnd = System.nanoTime() + 30_000_000_000L;
                }
                if (System.nanoTime() > quietEnd) {
                    throw new IllegalStateException("nothing came for 30 s, the end is not reached");
                }
            }
        }
        return count;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;   // for them alone: whatever else is printed, warnings of the client among it, goes elsewhere
        System.setOut(System.err);
        Peer peer = new Peer(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isEmpty()) {   // it has ended a load
                continue;
            }
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode job = JSON.readTree(line);
                long n = switch (job.get("op").asText()) {
                    case "produce" -> peer.produce(job);
                    case "consume" -> peer.consume(job);
                    case "transact" -> peer.transact(job);
                    case "load" -> peer.load(job, in, answer);
                    default -> throw new IllegalArgumentException("unknown op");
                };
                answer.put("ok", true).put("count", n).put("error", "");
            } catch (Exception e) {
                answer.put("ok", false).put("count", -1).put("error", e.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }
}
