/* checkpoint.c - offset checkpoints and partition.metadata as text. Called by the node; calls text. */
#include "checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>

#include "text.h"

void kb_checkpoint_init(struct kb_checkpoint *c) { memset(c, 0, sizeof(*c)); }

void kb_checkpoint_deinit(struct kb_checkpoint *c) {
    kw_free(c->v);
    kb_checkpoint_init(c);
}

kw_err kb_checkpoint_add(struct kb_checkpoint *c, struct kw_str topic, int32_t partition, int64_t offset) {
    if (topic.len <= 0 || topic.len > 255 || partition < 0 || offset < 0) return KW_EINVAL;
    if (c->count == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        struct kb_checkpoint_entry *v = kw_realloc(c->v, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->count++] = (struct kb_checkpoint_entry){topic, partition, offset};
    return KW_OK;
}

kw_err kb_checkpoint_encode(const struct kb_checkpoint *c, struct kw_out *out) {
    kb_text_add(out, "0\n%zu\n", c->count);
    for (size_t i = 0; i < c->count; i++)
        kb_text_add(out, "%.*s %" PRId32 " %" PRId64 "\n", (int)c->v[i].topic.len, c->v[i].topic.p, c->v[i].partition, c->v[i].offset);
    return out->err;
}

static int compare(const void *a, const void *b) {
    const struct kb_checkpoint_entry *x = a, *y = b;
    int n = x->topic.len < y->topic.len ? x->topic.len : y->topic.len;
    int r = memcmp(x->topic.p, y->topic.p, (size_t)n);
    if (!r) r = x->topic.len - y->topic.len;
    if (!r) r = x->partition < y->partition ? -1 : x->partition > y->partition;
    return r;
}

static kw_err decode_line(struct kb_checkpoint *c, const char *line, size_t n) {
    const char *f[3];
    size_t fn[3];
    int64_t partition, offset;
    for (int i = 0; i < 3; i++)
        if (!kb_text_field(&line, &n, &f[i], &fn[i])) return KW_EDECODE;
    if (n || fn[0] > 255 || !kb_text_int(f[1], fn[1], 0, INT32_MAX, &partition) || !kb_text_int(f[2], fn[2], 0, INT64_MAX, &offset)) return KW_EDECODE;
    return kb_checkpoint_add(c, (struct kw_str){f[0], (int32_t)fn[0]}, (int32_t)partition, offset);
}

kw_err kb_checkpoint_decode(struct kb_checkpoint *c, const uint8_t *p, size_t size) {
    struct kb_text t = {p, p + size};
    const char *line;
    size_t n;
    int64_t version, count = 0;
    kb_checkpoint_init(c);
    if (!kb_text_line(&t, &line, &n) || !kb_text_int(line, n, 0, 0, &version)) return KW_EDECODE;
    if (!kb_text_line(&t, &line, &n) || !kb_text_int(line, n, 0, INT32_MAX, &count)) return KW_EDECODE;
    if ((size_t)count > size / 6) return KW_EDECODE; /* "t 0 0\n" */
    kw_err err = KW_OK;
    for (int64_t i = 0; i < count && !err; i++) err = kb_text_line(&t, &line, &n) ? decode_line(c, line, n) : KW_EDECODE;
    if (!err && t.p != t.end) err = KW_EDECODE;
    if (c->count) qsort(c->v, c->count, sizeof(*c->v), compare);
    for (size_t i = 1; i < c->count && !err; i++)
        if (compare(&c->v[i - 1], &c->v[i]) == 0) err = KW_EDECODE;
    if (err) kb_checkpoint_deinit(c);
    return err;
}

int64_t kb_checkpoint_find(const struct kb_checkpoint *c, struct kw_str topic, int32_t partition) {
    struct kb_checkpoint_entry key = {topic, partition, 0};
    if (topic.len <= 0) return -1;
    const struct kb_checkpoint_entry *e = c->count ? bsearch(&key, c->v, c->count, sizeof(*c->v), compare) : NULL;
    return e ? e->offset : -1;
}

kw_err kb_partition_metadata_encode(const char *topic_id, struct kw_out *out) {
    kb_text_add(out, "version: 0\ntopic_id: %s", topic_id);
    return out->err;
}

kw_err kb_partition_metadata_decode(const uint8_t *p, size_t size, char topic_id[23]) {
    struct kb_text t = {p, p + size};
    const char *line, *f, *v;
    size_t n, fn, vn;
    bool version = false, id = false;
    while (kb_text_line(&t, &line, &n)) {
        if (!n) continue;
        if (!kb_text_field(&line, &n, &f, &fn) || !kb_text_field(&line, &n, &v, &vn)) return KW_EDECODE;
        if (fn == 8 && memcmp(f, "version:", 8) == 0) {
            if (vn != 1 || *v != '0') return KW_EVERSION;
            version = true;
        } else if (fn == 9 && memcmp(f, "topic_id:", 9) == 0 && vn == 22) {
            memcpy(topic_id, v, 22);
            topic_id[22] = 0;
            id = true;
        }
    }
    return version && id ? KW_OK : KW_EDECODE;
}
