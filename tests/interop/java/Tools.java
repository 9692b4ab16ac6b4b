/*
 * Apache Kafka's administration tools, one after the other in one JVM: a tool's main() is called as its script would, its exit caught.
 * Called by judge/tools.py (Toolbox): a JSON line {"class", "args"} in, a JSON line {"code", "out", "err"} back.
 */
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

public final class Tools {
    /** What a tool's exit becomes. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    /** Of the tool that runs: its first exit's code. Some tools catch everything, that exit too, and go on; nothing of it counts. */
    private static Integer ended;

    private static void end(int code) {
        if (ended == null) {
            ended = code;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static int call(String name, String[] args) throws Exception {
        ended = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (ended == null) {
                e.getCause().printStackTrace();   // as the launcher would, to the tool's stderr
                return 1;
            }
        }
        return ended == null ? 0 : ended;
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode job = json.readTree(line);
            List<String> args = new ArrayList<>();
            job.get("args").forEach(a -> args.add(a.asText()));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = call(job.get("class").asText(), args.toArray(new String[0]));
            answers.println(json.writeValueAsString(json.createObjectNode().put("code", code)
                    .put("out", out.toString(StandardCharsets.UTF_8)).put("err", err.toString(StandardCharsets.UTF_8))));
        }
    }
}
