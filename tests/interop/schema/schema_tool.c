/* schema_tool.c - the C side of the codec's cross-check; SchemaPeer.java is the other and states the file's form.
 *
 *   schema_tool make FILE SEED COUNT    COUNT random instances of every message in every version
 *   schema_tool check FILE              every entry must decode to its end and encode to the same bytes
 */
#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "random_msg.h"

static const struct kw_desc *desc_by_name(const char *name) {
    for (size_t i = 0; i < kw_message_count; i++) {
        if (strcmp(kw_messages[i]->name, name) == 0) return kw_messages[i];
    }
    return NULL;
}

static int make(const char *path, uint64_t seed, long count) {
    FILE *f = fopen(path, "wb");
    if (!f) return perror(path), 1;
    struct kw_rng rng;
    kw_rng_init(&rng, seed);
    struct kw_arena a;
    kw_arena_init(&a, 0);
    struct kw_out entry, body;
    kw_out_init(&entry);
    kw_out_init(&body);
    int rc = 0;
    long entries = 0;
    for (size_t i = 0; i < kw_message_count && rc == 0; i++) {
        const struct kw_desc *d = kw_messages[i];
        for (int16_t v = d->min; v <= d->max; v++) {
            for (long k = 0; k < count; k++, entries++) {
                kw_arena_reset(&a);
                kw_out_reset(&entry);
                kw_out_reset(&body);
                void *msg = random_message(d, v, &rng, &a, k == 0 ? 0 : (uint32_t)(1 + kw_rng_below(&rng, 4)));
                if (kw_encode(d, v, msg, &body) != KW_OK) return fprintf(stderr, "%s v%d: encode\n", d->name, v), 1;
                kw_out_i16(&entry, (int16_t)strlen(d->name));
                kw_out_bytes(&entry, d->name, strlen(d->name));
                kw_out_i16(&entry, v);
                kw_out_i32(&entry, (int32_t)body.len);
                kw_out_bytes(&entry, body.p, body.len);
                if (fwrite(entry.p, 1, entry.len, f) != entry.len) rc = 1;
            }
        }
    }
    if (fclose(f) != 0 || rc) return perror(path), 1;
    printf("%ld entries\n", entries);
    kw_out_deinit(&entry);
    kw_out_deinit(&body);
    kw_arena_deinit(&a);
    return 0;
}

/* NULL: the same bytes came out. */
static const char *recode(const struct kw_desc *d, int16_t version, const uint8_t *p, size_t n, struct kw_arena *a, struct kw_out *out) {
    void *msg = kw_malloc(d->size);
    if (!msg) return "no memory";
    struct kw_in in;
    kw_in_init(&in, p, n);
    const char *why = NULL;
    if (kw_decode(d, version, &in, a, msg) != KW_OK) why = "does not decode";
    else if (kw_in_left(&in) != 0) why = "bytes left over";
    else if (kw_encode(d, version, msg, out) != KW_OK) why = "does not encode";
    else if (out->len != n || memcmp(out->p, p, n) != 0) why = "encodes to other bytes";
    kw_free(msg);
    return why;
}

static void print_hex(const char *label, const uint8_t *p, size_t n) {
    printf("  %s ", label);
    for (size_t i = 0; i < n; i++) printf("%02x", p[i]);
    printf("\n");
}

static int check(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return perror(path), 1;
    long passed = 0, failed = 0;
    struct kw_arena a;
    kw_arena_init(&a, 0);
    struct kw_out out;
    kw_out_init(&out);
    uint8_t head[2];
    while (fread(head, 1, 2, f) == 2) {
        char name[256] = {0};
        uint8_t rest[6];
        if (kw_load16(head) >= sizeof name || fread(name, 1, kw_load16(head), f) != kw_load16(head) || fread(rest, 1, 6, f) != 6) break;
        int16_t version = (int16_t)kw_load16(rest);
        size_t n = kw_load32(rest + 2);
        uint8_t *p = kw_malloc(n);
        if (!p || fread(p, 1, n, f) != n) break;
        kw_arena_reset(&a);
        kw_out_reset(&out);
        const struct kw_desc *d = desc_by_name(name);
        const char *why = d ? recode(d, version, p, n, &a, &out) : "unknown message";
        if (!why) passed++;
        else if (failed++ < 20) {
            printf("FAIL %s v%d: %s\n", name, version, why);
            print_hex("theirs", p, n);
            print_hex("ours  ", out.p, out.len);
        }
        kw_free(p);
    }
    if (!feof(f)) failed++;
    fclose(f);
    kw_out_deinit(&out);
    kw_arena_deinit(&a);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed || !passed;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0) return make(argv[2], strtoull(argv[3], NULL, 0), strtol(argv[4], NULL, 0));
    if (argc == 3 && strcmp(argv[1], "check") == 0) return check(argv[2]);
    fprintf(stderr, "usage: schema_tool make FILE SEED COUNT | schema_tool check FILE\n");
    return 2;
}
