/* fuzz_print.c - kbroker print on any bytes. The first byte says how they are taken: bit 0, as a file of entries; else as one frame, whose API, version and
 * direction the next three choose. Bit 1: each record is shown. Each line is JSON; entries that are found are where they were put; nothing is read outside. */
#include <stdlib.h>

#include <jansson.h>

#include "kit/kit.h"
#include "print.h"

static struct kb_print print = {.bytes_max = 16};

static void print_one(const struct kb_recording_entry *e) {
    struct kw_out line;
    json_error_t at;
    kw_out_init(&line);
    kb_print_entry(&print, e, &line);
    if (line.err == KW_OK) {
        json_t *j = json_loadb((const char *)line.p, line.len, JSON_ALLOW_NUL, &at);
        FUZZ_CHECK(j, "%s at %d: %.*s", at.text, at.position, (int)KW_MIN(line.len, (size_t)2000), (const char *)line.p);
        json_decref(j);
    }
    kw_out_deinit(&line);
}

static void walk(const uint8_t *p, size_t n) {
    for (size_t at = 0, used; at < n; at += used) {
        struct kb_recording_entry e;
        const char *why = NULL;
        enum kb_recording_found found = kb_recording_next(p + at, n - at, true, &e, &used, &why);
        FUZZ_CHECK(found != KB_RECORDING_MORE && used > 0 && used <= n - at, "found %d, %zu bytes of %zu", (int)found, used, n - at);
        if (found == KB_RECORDING_ENTRY && e.frame_size <= 1 << 20) print_one(&e);
    }
}

static void frame(const uint8_t *p, size_t n) {
    const struct kw_api *named = kw_api_by_key(p[0]), *api = named ? named : &kw_apis[p[0] % kw_api_count];
    struct kb_recording_entry e = {.response = p[2] & 1,
                                   .api_key = api->key,
                                   .version = (int16_t)(api->min + p[1] % (api->max - api->min + 2)), /* one too many */
                                   .frame_size = (uint32_t)(n - 3),
                                   .client_id = kw_str_null(),
                                   .piece_count = n > 3,
                                   .pieces = {{0, (uint32_t)(n - 3)}},
                                   .data = p + 3,
                                   .data_size = n - 3};
    size_t gap = (size_t)(p[2] >> 1); /* bytes in the middle that were not stored */
    if (gap > 0 && n - 3 > gap + 2) {
        uint32_t at = (uint32_t)(n - 3 - gap) / 2;
        e.pieces[0].len = at;
        e.pieces[1] = (struct kb_piece){at + (uint32_t)gap, (uint32_t)(n - 3 - gap) - at};
        e.piece_count = 2;
        e.data_size = n - 3 - gap;
    }
    print_one(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) return 0;
    if (!print.compressor) print.compressor = kw_compressor_new();
    print.records = data[0] & 2;
    if (data[0] & 1)
        walk(data + 1, size - 1);
    else
        frame(data + 1, size - 1);
    return 0;
}
