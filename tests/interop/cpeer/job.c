/* job - see job.h. */
#include "job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *job_bootstrap;
long job_load_acked, job_load_failed;
static char failure[1024];

int job_fail(const char *what, const char *why)
{
    if (!failure[0]) snprintf(failure, sizeof failure, "%s: %s", what, why);
    return -1;
}

int job_failed(void)
{
    return failure[0] != 0;
}

void *job_need(void *p)
{
    if (!p) {
        fprintf(stderr, "peer: out of memory\n");
        exit(3);
    }
    return p;
}

uint64_t job_now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

const char *job_text(const json_t *job, const char *name, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(job, name));
    return s ? s : otherwise;
}

long job_number(const json_t *job, const char *name, long otherwise)
{
    const json_t *v = json_object_get(job, name);
    return json_is_integer(v) ? (long)json_integer_value(v) : otherwise;
}

int job_is(const json_t *job, const char *name)
{
    return json_is_true(json_object_get(job, name));
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

struct bytes job_unbase64(const json_t *s)
{
    static unsigned char value[256];
    if (!value['B'])
        for (int i = 0; i < 64; i++) value[(unsigned char)alphabet[i]] = (unsigned char)i;
    struct bytes b = {NULL, 0};
    if (!json_is_string(s)) return b;
    const unsigned char *in = (const unsigned char *)json_string_value(s);
    size_t n = json_string_length(s);
    b.data = job_need(malloc(n / 4 * 3 + 1));
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint32_t v = 0;
        for (size_t j = 0; j < 4; j++) v = v << 6 | value[in[i + j]]; /* '=' counts 0 */
        b.data[b.size++] = (unsigned char)(v >> 16);
        if (in[i + 2] != '=') b.data[b.size++] = (unsigned char)(v >> 8);
        if (in[i + 3] != '=') b.data[b.size++] = (unsigned char)v;
    }
    return b;
}

void job_put_base64(FILE *f, const void *data, size_t size)
{
    const unsigned char *in = data;
    if (!data) {
        fputs("null", f);
        return;
    }
    putc_unlocked('"', f);
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t v = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
        putc_unlocked(alphabet[v >> 18], f);
        putc_unlocked(alphabet[v >> 12 & 63], f);
        putc_unlocked(left > 1 ? alphabet[v >> 6 & 63] : '=', f);
        putc_unlocked(left > 2 ? alphabet[v & 63] : '=', f);
    }
    putc_unlocked('"', f);
}

void job_put_record(FILE *f, const char *topic, int partition, int64_t offset, int64_t timestamp_ms, const void *key,
                    size_t key_size, const void *value, size_t value_size)
{
    fprintf(f, "{\"topic\":\"%s\",\"partition\":%d,\"offset\":%lld,\"timestamp\":%lld,\"key\":", topic, partition,
            (long long)offset, (long long)timestamp_ms);
    job_put_base64(f, key, key_size);
    fputs(",\"value\":", f);
    job_put_base64(f, value, value_size);
    fputs(",\"headers\":[", f);
}

void job_put_header(FILE *f, size_t index, const char *name, size_t name_size, const void *value, size_t value_size)
{
    json_t *s = json_stringn(name, name_size);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    fprintf(f, "%s[%s,", index ? "," : "", quoted ? quoted : "\"not UTF-8\"");
    job_put_base64(f, value, value_size);
    putc(']', f);
    free(quoted);
    json_decref(s);
}

long job_each(const json_t *job, int (*send)(void *ctx, const json_t *record, long index), void *ctx)
{
    const char *path = job_text(job, "file", "");
    FILE *in = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    long sent = 0;
    if (!in) return job_fail(path, strerror(errno));
    while (sent >= 0 && getline(&line, &capacity, in) > 0) {
        json_error_t why;
        json_t *r = json_loads(line, 0, &why);
        int err = r ? send(ctx, r, sent) : job_fail(path, why.text);
        json_decref(r);
        sent = err ? -1 : sent + 1;
    }
    free(line);
    fclose(in);
    return sent;
}

size_t job_load_value(char *buf, size_t capacity, uint64_t id)
{
    int n = snprintf(buf, capacity, "%016llx:", (unsigned long long)id);
    size_t size = (size_t)n + (size_t)(id * 2654435761u % 900u);
    for (size_t i = (size_t)n; i < size; i++) buf[i] = (char)('a' + (id + i) % 26u);
    return size;
}

int job_stop_asked(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static void answer(const char *op, long n)
{
    json_t *a = json_pack("{s:b,s:I,s:s}", "ok", n >= 0, "count", (json_int_t)n, "error", n < 0 ? failure : "");
    if (!strcmp(op, "load")) {
        json_object_set_new(a, "acked", json_integer(job_load_acked));
        json_object_set_new(a, "failed", json_integer(job_load_failed));
    }
    json_dumpf(a, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(a);
}

int job_main(int argc, char **argv, const char *version, const struct job_op *ops)
{
    char *line = NULL;
    size_t capacity = 0;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        puts(version);
        return 0;
    }
    if (argc != 2) {
        fprintf(stderr, "usage: %s BOOTSTRAP < jobs\n", argv[0]);
        return 2;
    }
    job_bootstrap = argv[1];
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdin, NULL, _IONBF, 0); /* load polls the descriptor for the next line */
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t why;
        json_t *job = json_loads(line, 0, &why);
        const char *op = job_text(job, "op", "");
        const struct job_op *o = ops;
        failure[0] = 0;
        while (o->name && strcmp(o->name, op)) o++;
        if (o->name || line[0] != '\n') answer(op, o->name ? o->run(job) : job_fail("unknown op", op));
        json_decref(job);
    }
    free(line);
    return 0;
}
