// SchemaPeer.java - the Java side of the codec's cross-check: makes random messages with Apache Kafka's own generated classes, and
// decodes and re-encodes ours. Called by run.sh with one release's jars on the class path; the C side is schema_tool.c.
//
//   SchemaPeer make  LIST FILE SEED COUNT   COUNT instances of each version of LIST that these jars know
//   SchemaPeer check LIST FILE              every entry must decode to its end and encode to the same bytes
//
// LIST: a line `Name min max` a message. FILE: entries of u16 size and bytes of the name, i16 version, i32 size and bytes of the body.
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

public class SchemaPeer {
    static final String[] PREFIXES = {"org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated."};
    static Random random;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("make")) make(args[1], args[2], Long.parseLong(args[3]), Integer.parseInt(args[4]));
        else check(args[1], args[2]);
    }

    static Class<?> classOf(String name) {
        for (String prefix : PREFIXES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException e) {
                    // another place or an older release
                }
            }
        }
        return null;
    }

    static int constant(Class<?> c, String name) throws Exception {
        return ((Number) c.getField(name).get(null)).intValue();
    }

    static void make(String list, String file, long seed, int count) throws Exception {
        random = new Random(seed);
        int versions = 0, entries = 0;
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file)))) {
            for (String line : Files.readAllLines(Path.of(list))) {
                String[] w = line.split(" ");
                Class<?> c = classOf(w[0]);
                if (c == null) continue;
                int min = Math.max(Integer.parseInt(w[1]), constant(c, "LOWEST_SUPPORTED_VERSION"));
                int max = Math.min(Integer.parseInt(w[2]), constant(c, "HIGHEST_SUPPORTED_VERSION"));
                Schema[] schemas = (Schema[]) c.getField("SCHEMAS").get(null);
                for (int v = min; v <= max; v++, versions++) {
                    random.setSeed(seed + (w[0] + v).hashCode()); // so that a new message changes no other's instances
                    for (int i = 0; i < count; i++, entries++) {
                        Message m = (Message) c.getDeclaredConstructor().newInstance();
                        fill(m, schemas[v], i == 0 ? 0 : 1 + random.nextInt(4));
                        write(out, w[0], (short) v, encode(m, (short) v));
                    }
                }
            }
        }
        System.out.println(versions + " versions, " + entries + " entries");
    }

    static byte[] encode(Message m, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buf = ByteBuffer.allocate(m.size(cache, version));
        m.write(new ByteBufferAccessor(buf), cache, version);
        if (buf.hasRemaining()) throw new IllegalStateException("size() and write() differ");
        return buf.array();
    }

    static void write(DataOutputStream out, String name, short version, byte[] body) throws Exception {
        byte[] n = name.getBytes(StandardCharsets.UTF_8);
        out.writeShort(n.length);
        out.write(n);
        out.writeShort(version);
        out.writeInt(body.length);
        out.write(body);
    }

    static void check(String list, String file) throws Exception {
        int passed = 0, failed = 0;
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(file)))) {
            while (true) {
                byte[] name;
                try {
                    name = new byte[in.readUnsignedShort()];
                } catch (EOFException e) {
                    break;
                }
                in.readFully(name);
                short version = in.readShort();
                byte[] body = new byte[in.readInt()];
                in.readFully(body);
                String n = new String(name, StandardCharsets.UTF_8);
                Class<?> c = classOf(n);
                if (c == null || version < constant(c, "LOWEST_SUPPORTED_VERSION") || version > constant(c, "HIGHEST_SUPPORTED_VERSION")) continue;
                String why = recode(c, version, body);
                if (why == null) passed++;
                else if (failed++ < 20) System.out.println("FAIL " + n + " v" + version + ": " + why + "\n  ours  " + HexFormat.of().formatHex(body));
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        if (failed > 0 || passed == 0) System.exit(1);
    }

    static String recode(Class<?> c, short version, byte[] body) {
        try {
            Message m = (Message) c.getDeclaredConstructor().newInstance();
            ByteBuffer buf = ByteBuffer.wrap(body);
            m.read(new ByteBufferAccessor(buf), version);
            if (buf.hasRemaining()) return buf.remaining() + " bytes left over in " + m;
            byte[] again = encode(m, version);
            return Arrays.equals(again, body) ? null : "differs after " + m + "\n  theirs " + HexFormat.of().formatHex(again);
        } catch (Exception e) {
            return e.toString();
        }
    }

    // Random content. What a version carries comes from the schema constants of the generated class.

    static void fill(Message m, Schema schema, int size) throws Exception {
        for (BoundField b : schema.fields()) {
            if (b.def.type instanceof TaggedFields tagged) {
                Field map = TaggedFields.class.getDeclaredField("fields"); // older releases have no public way to it
                map.setAccessible(true);
                for (Object o : ((Map<?, ?>) map.get(tagged)).values()) {
                    var f = (org.apache.kafka.common.protocol.types.Field) o;
                    if (size > 0 && random.nextInt(3) > 0) set(m, f.name, f.type, size);
                }
            } else {
                set(m, b.def.name, b.def.type, size);
            }
        }
    }

    static Field fieldOf(Class<?> c, String snake) {
        String want = snake.replace("_", "");
        for (Field f : c.getDeclaredFields()) {
            if (f.getName().equalsIgnoreCase(want)) {
                f.setAccessible(true);
                return f;
            }
        }
        throw new IllegalStateException("no field " + snake + " in " + c);
    }

    static void set(Message m, String name, org.apache.kafka.common.protocol.types.Type type, int size) throws Exception {
        Field f = fieldOf(m.getClass(), name);
        // Older releases' type of records says nullable always.
        boolean nullable = (type.isNullable() && !name.equals("unaligned_records")) || (Message.class.isAssignableFrom(f.getType()) && f.get(m) == null);
        if (nullable && random.nextInt(4) == 0) {
            f.set(m, null);
            return;
        }
        f.set(m, value(f.getType(), f.getGenericType(), type, size));
    }

    static Object value(Class<?> c, Type generic, org.apache.kafka.common.protocol.types.Type type, int size) throws Exception {
        if (Collection.class.isAssignableFrom(c)) return collection(c, generic, type, size);
        if (Message.class.isAssignableFrom(c)) {
            Message s = (Message) c.getDeclaredConstructor().newInstance();
            fill(s, (Schema) type, size);
            return s;
        }
        long v = integer();
        if (c == boolean.class || c == Boolean.class) return (v & 1) != 0;
        if (c == byte.class || c == Byte.class) return (byte) v;
        if (c == short.class || c == Short.class) return (short) v;
        String t = type.toString();
        if (t.equals("UINT16")) return (int) (v & 0xffff);
        if (t.equals("UINT32")) return v & 0xffffffffL;
        if (c == int.class || c == Integer.class) return (int) v;
        if (c == long.class || c == Long.class) return v;
        if (c == double.class) return random.nextDouble();
        if (c == Uuid.class) return random.nextInt(5) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
        if (c == String.class) return string(size);
        if (c == byte[].class) return bytes(size);
        if (c == ByteBuffer.class) return ByteBuffer.wrap(bytes(size));
        if (c.getSimpleName().equals("BaseRecords")) {
            Class<?> records = Class.forName(c.getPackageName() + ".MemoryRecords"); // its package moved between releases
            return records.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes(size)));
        }
        throw new IllegalStateException("no random " + c);
    }

    @SuppressWarnings("unchecked")
    static Object collection(Class<?> c, Type generic, org.apache.kafka.common.protocol.types.Type type, int size) throws Exception {
        Type g = generic instanceof ParameterizedType ? generic : c.getGenericSuperclass();
        Class<?> element = (Class<?>) ((ParameterizedType) g).getActualTypeArguments()[0];
        Collection<Object> list = c.isInterface() ? new java.util.ArrayList<>() : (Collection<Object>) c.getDeclaredConstructor().newInstance();
        org.apache.kafka.common.protocol.types.Type elementType = type.arrayElementType().get();
        int n = size == 0 ? 0 : random.nextInt(20) == 0 ? 130 / (1 + depth * 40) : random.nextInt(size + 1);
        depth++;
        for (int i = 0; i < n; i++) list.add(value(element, element, elementType, size));
        depth--;
        return list;
    }

    static int depth;

    static long integer() {
        return switch (random.nextInt(6)) {
            case 0 -> 0;
            case 1 -> -1;
            case 2 -> random.nextInt(300);
            case 3 -> random.nextBoolean() ? Long.MAX_VALUE : Long.MIN_VALUE;
            case 4 -> random.nextInt();
            default -> random.nextLong();
        };
    }

    static int length(int size) {
        return size == 0 ? 0 : switch (random.nextInt(40)) {
            case 0 -> 126 + random.nextInt(4);
            case 1 -> size == 4 && depth == 0 ? 16380 + random.nextInt(8) : 200;
            case 2, 3, 4, 5, 6 -> 0;
            default -> 1 + random.nextInt(12);
        };
    }

    static String string(int size) {
        StringBuilder s = new StringBuilder();
        for (int n = length(size); n > 0; n--) s.appendCodePoint(random.nextInt(8) == 0 ? "\u00e9\u4e16\0\ud83d\ude00".codePoints().toArray()[random.nextInt(4)] : 'a' + random.nextInt(26));
        return s.toString();
    }

    static byte[] bytes(int size) {
        byte[] b = new byte[length(size)];
        random.nextBytes(b);
        return b;
    }
}
