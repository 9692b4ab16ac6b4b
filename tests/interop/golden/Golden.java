// Golden.java - record batches and message sets by Apache Kafka's own code.
//
//   java Golden write FILE           writes tests/unit/golden/batches.h: sets made by Kafka's builder, which test_golden.c reads
//   java Golden verify DIR TABLE.h   reads the sets that `test_golden --write DIR` made, record by record; compares the error table with
//                                    the enum of Kafka
//
// The records of a set follow from its name, MAGIC-CODEC-SCENARIO, by the rules of expected(); test_golden.c states the same rules.
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

public class Golden {
    static final long BASE_OFFSET = 100, TIME = 1700000000000L, APPEND_TIME = 1700000009999L;
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final String[] SCENARIOS = {"plain", "nulls", "headers", "times", "append", "large"};
    static int passed, failed;

    record Expected(long timestamp, byte[] key, byte[] value, Header[] headers) { }

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static boolean exists(int magic, String codec, String scenario) {
        if (magic < 2 && (codec.equals("zstd") || scenario.equals("headers"))) return false;
        if (magic < 2 && codec.equals("snappy") && scenario.equals("large")) return false; /* would be most of the file */
        return magic > 0 || !scenario.equals("times") && !scenario.equals("append");
    }

    static List<Expected> expected(int magic, String scenario) {
        List<Expected> list = new ArrayList<>();
        int count = scenario.equals("large") ? 40 : 6;
        for (int i = 0; i < count; i++) {
            long timestamp = TIME + i * 7L - (i == 3 ? 100000 : 0);
            byte[] key = bytes("key-" + i), value = bytes("value-" + i + "-" + ("" + (char) ('a' + i % 26)).repeat(20));
            Header[] headers = {};
            switch (scenario) {
                case "nulls" -> {
                    key = i % 3 == 0 ? null : i % 3 == 1 ? new byte[0] : key;
                    value = i % 2 == 0 ? null : i == 1 ? new byte[0] : value;
                }
                case "headers" -> {
                    headers = new Header[i];
                    for (int k = 0; k < i; k++)
                        headers[k] = new RecordHeader(k == 2 ? "" : "h" + k % 2, k == 1 ? null : k == 3 ? new byte[0] : bytes("x" + k));
                }
                case "times" -> timestamp = i == 0 ? 0 : i == 1 ? TIME : i == 2 ? 1L << 33 : i;
                case "large" -> value = bytes(("large " + i + " ").repeat(600)); /* several blocks of every codec */
                default -> { }
            }
            if (scenario.equals("append")) timestamp = APPEND_TIME;
            list.add(new Expected(magic == 0 ? -1 : timestamp, key, value, headers));
        }
        return list;
    }

    static Compression compression(String codec) {
        return switch (codec) {
            case "gzip" -> Compression.gzip().build();
            case "snappy" -> Compression.snappy().build();
            case "lz4" -> Compression.lz4().build();
            case "zstd" -> Compression.zstd().build();
            default -> Compression.NONE;
        };
    }

    static byte[] build(int magic, String codec, String scenario) {
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : scenario.equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder b = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), (byte) magic, compression(codec), type, BASE_OFFSET, APPEND_TIME);
        for (Expected e : expected(magic, scenario)) b.append(e.timestamp, e.key, e.value, e.headers);
        ByteBuffer buffer = b.build().buffer();
        byte[] result = new byte[buffer.remaining()];
        buffer.get(result);
        return result;
    }

    static void write(String file) throws Exception {
        try (PrintWriter out = new PrintWriter(file)) {
            out.println("/* batches.h - message sets and record batches built by Apache Kafka's own code, for test_golden.c.\n"
                + " * Made by tests/interop/golden/run.sh --write; do not edit. */");
            out.println("#ifndef GOLDEN_BATCHES_H\n#define GOLDEN_BATCHES_H\n\nstatic const struct golden {\n    const char *codec, *scenario;\n    int magic;\n    const char *hex;\n} goldens[] = {");
            for (int magic = 0; magic <= 2; magic++)
                for (String codec : CODECS)
                    for (String scenario : SCENARIOS) {
                        if (!exists(magic, codec, scenario) || scenario.equals("large") && codec.equals("none")) continue;
                        String hex = HexFormat.of().formatHex(build(magic, codec, scenario));
                        out.println("    {\"" + codec + "\", \"" + scenario + "\", " + magic + ",");
                        for (int i = 0; i < hex.length(); i += 140)
                            out.println("     \"" + hex.substring(i, Math.min(hex.length(), i + 140)) + "\"" + (i + 140 >= hex.length() ? "}," : ""));
                    }
            out.println("};\n\n#endif");
        }
    }

    static void check(boolean ok, String what) {
        if (ok) return;
        throw new IllegalStateException(what);
    }

    static void verify(Path file) throws Exception {
        String[] name = file.getFileName().toString().replace(".bin", "").split("-");
        int magic = Integer.parseInt(name[0]);
        List<Expected> want = expected(magic, name[2]);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        int i = 0;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            check(batch.magic() == magic, "magic " + batch.magic());
            check(batch.compressionType().name.equals(name[1]), "codec " + batch.compressionType().name);
            if (magic == 2) {
                check(batch.baseOffset() == BASE_OFFSET && batch.countOrNull() == want.size(), "base offset or count");
                check(batch.maxTimestamp() == want.stream().mapToLong(Expected::timestamp).max().getAsLong(), "max timestamp " + batch.maxTimestamp());
            }
            for (org.apache.kafka.common.record.internal.Record r : batch) {
                r.ensureValid();
                Expected e = want.get(i);
                check(r.offset() == BASE_OFFSET + i, "offset " + r.offset() + " of record " + i);
                check(r.timestamp() == e.timestamp, "timestamp " + r.timestamp() + " of record " + i + ", not " + e.timestamp);
                check(Objects.equals(r.hasKey() ? r.key() : null, e.key == null ? null : ByteBuffer.wrap(e.key)), "key of record " + i);
                check(Objects.equals(r.hasValue() ? r.value() : null, e.value == null ? null : ByteBuffer.wrap(e.value)), "value of record " + i);
                check(Arrays.equals(r.headers(), e.headers), "headers of record " + i);
                i++;
            }
        }
        check(i == want.size(), i + " records instead of " + want.size());
    }

    static void verifyAll(String dir) throws Exception {
        List<Path> files = new ArrayList<>();
        try (DirectoryStream<Path> s = Files.newDirectoryStream(Path.of(dir), "*.bin")) { s.forEach(files::add); }
        Collections.sort(files);
        for (Path f : files) {
            try {
                verify(f);
                passed++;
            } catch (Throwable t) {
                failed++;
                System.out.println("FAILED " + f.getFileName() + ": " + t);
            }
        }
    }

    static void errors(String table) throws Exception {
        Map<Integer, String> ours = new TreeMap<>(), theirs = new TreeMap<>();
        Matcher m = Pattern.compile("X\\((-?\\d+), (\\w+), (true|false), (true|false), \"").matcher(Files.readString(Path.of(table)));
        while (m.find()) ours.put(Integer.parseInt(m.group(1)), m.group(2) + " " + m.group(3) + " " + m.group(4));
        for (Errors e : Errors.values())
            theirs.put((int) e.code(), e.name() + " " + (e.exception() instanceof RetriableException) + " " + (e.exception() instanceof InvalidMetadataException));
        Set<Integer> codes = new TreeSet<>(ours.keySet());
        codes.addAll(theirs.keySet());
        for (int code : codes) {
            if (Objects.equals(ours.get(code), theirs.get(code))) {
                passed++;
            } else {
                failed++;
                System.out.println("FAILED error " + code + ": ours " + ours.get(code) + ", Kafka's " + theirs.get(code));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> { write(args[1]); return; }
            case "verify" -> { verifyAll(args[1]); errors(args[2]); }
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 && passed > 0 ? 0 : 1);
    }
}
