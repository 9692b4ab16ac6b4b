/* checkpoint.c - reads and writes offset checkpoint files. Called by partitions.c. Calls log/text. */
#include "checkpoint.h"

#include <stdio.h>

#include "log/text.h"

enum { NAME_MAX_SIZE = 300 }; /* a topic name has at most 249 bytes */

static bool read_entry(struct kb_checkpoint *c, const char *line, size_t n) {
    const char *topic, *part, *offset;
    size_t topic_n, part_n, offset_n;
    int64_t index, value;
    if (!kb_text_field(&line, &n, &topic, &topic_n) || !kb_text_field(&line, &n, &part, &part_n) ||
        !kb_text_field(&line, &n, &offset, &offset_n))
        return false;
    if (topic_n == 0 || topic_n > 249 || !kb_text_int(part, part_n, 0, INT32_MAX, &index) ||
        !kb_text_int(offset, offset_n, 0, INT64_MAX - 1, &value))
        return false;
    char name[NAME_MAX_SIZE];
    int len = snprintf(name, sizeof(name), "%.*s-%d", (int)topic_n, topic, (int32_t)index);
    return len > 0 && kw_map_put(&c->by_name, name, (size_t)len, (void *)(uintptr_t)(value + 1)) == KW_OK; /* values are never NULL */
}

kw_err kb_checkpoint_decode(struct kb_checkpoint *c, const uint8_t *p, size_t n) {
    struct kb_text t = {p, p + n};
    const char *line;
    size_t len;
    int64_t version, count, seen = 0;
    kw_map_init(&c->by_name);
    if (!kb_text_line(&t, &line, &len) || !kb_text_int(line, len, 0, 0, &version)) return KW_EDECODE;
    if (!kb_text_line(&t, &line, &len) || !kb_text_int(line, len, 0, INT32_MAX, &count)) return KW_EDECODE;
    if (p[n - 1] != '\n') return KW_EDECODE; /* cut in the middle of an offset it would still be one */
    while (kb_text_line(&t, &line, &len) && len > 0) {
        if (!read_entry(c, line, len)) break;
        seen++;
    }
    if (seen == count && t.p == t.end) return KW_OK;
    kb_checkpoint_deinit(c);
    return KW_EDECODE;
}

int64_t kb_checkpoint_get(const struct kb_checkpoint *c, const char *topic, int32_t index) {
    char name[NAME_MAX_SIZE];
    int len = snprintf(name, sizeof(name), "%s-%d", topic, index);
    void *v = len > 0 && (size_t)len < sizeof(name) ? kw_map_get(&c->by_name, name, (size_t)len) : NULL;
    return v ? (int64_t)(uintptr_t)v - 1 : -1;
}

void kb_checkpoint_deinit(struct kb_checkpoint *c) {
    kw_map_deinit(&c->by_name);
    kw_map_init(&c->by_name);
}

void kb_checkpoint_begin(struct kw_out *out, size_t count) {
    kb_text_add(out, "0\n%zu\n", count);
}

void kb_checkpoint_add(struct kw_out *out, const char *topic, int32_t index, int64_t offset) {
    kb_text_add(out, "%s %d %lld\n", topic, index, (long long)offset);
}
