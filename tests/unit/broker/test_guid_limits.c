/* test_guid_limits.c - how many records a batch for a topic with message.guid.dedup may have, and how many ids a LookupGuid may name of one partition: at the
 * limit it is served, one above it is refused with words that name the limit (specs.md, GUID dedup: rules 2 and 23). */
#include "guid_rig.h"

enum { LIMIT = 1 << 20 };

static void holds(struct kw_str text, const char *part) {
    char s[256] = "";
    assert_in_range(text.len, 1, (int)sizeof(s) - 1);
    memcpy(s, text.p, (size_t)text.len);
    if (!strstr(s, part)) fail_msg("'%s' is not in '%s'", part, s);
}

/* n records of seven bytes, the first and the last with an id; compressed they are small. */
static uint8_t *many_records(int32_t n, const struct rig *r, size_t *size) {
    size_t cap = KW_BATCH_HEADER_SIZE + (size_t)n * 16 + 256;
    uint8_t *p = malloc(cap), *packed = malloc(cap), *at = p + KW_BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < n; i++) {
        uint8_t id[16];
        guid_of(id, (uint64_t)i + 1);
        struct kw_header_view h = {kw_str_of("guid"), {id, 16}};
        struct kw_record_in rec = {.offset_delta = i, .key = {NULL, -1}, .value = {NULL, -1}, .headers = &h, .header_count = i == 0 || i == n - 1};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    *size = (size_t)(at - p);
    assert_true(*size < cap);
    struct kw_batch_header h = {.length = (int32_t)(*size - KW_BATCH_OVERHEAD), .leader_epoch = -1, .magic = 2, .last_offset_delta = n - 1,
                                .base_timestamp = r->now.wall_ms, .max_timestamp = r->now.wall_ms, .producer_id = -1, .producer_epoch = -1,
                                .base_sequence = -1, .record_count = n};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    struct kw_compressor *c = kw_compressor_new();
    assert_int_equal(kw_batch_compress(c, KW_CODEC_ZSTD, KW_LEVEL_DEFAULT, p, *size, packed, cap, size), KW_OK);
    kw_compressor_free(c);
    free(p);
    return packed;
}

static rig_produced put_many(struct rig_conn *c, const char *topic, int32_t n) {
    size_t size;
    uint8_t *p = many_records(n, c->rig, &size);
    rig_produced a = rig_produce_bytes(c, topic, 0, 9, -1, p, size);
    free(p);
    return a;
}

static void test_records_of_a_batch(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 1);
    assert_int_equal(rig_create(c, "plain", 1, NULL, NULL), KE_NONE);
    rig_produced a = put_many(c, "t", LIMIT + 1);
    guid_expect(a, KE_MESSAGE_TOO_LARGE, -1);
    holds(a.error_message, "at most 1048576 records");
    assert_int_equal(guid_log_of(&r)->leo, 0); /* nothing of it was stored */
    guid_expect(put_many(c, "plain", LIMIT + 1), KE_NONE, 0); /* a topic that looks no ids up has no such limit */
    guid_expect(put_many(c, "t", LIMIT), KE_NONE, 0);
    assert_int_equal(guid_log_of(&r)->leo, LIMIT);
    guid_expect(guid_put(c, true, GUIDS(IDS(1))), KE_NONE, 0); /* its first, known from now on; and its last */
    a = guid_put(c, true, GUIDS(IDS(LIMIT, 5)));
    guid_expect(a, KE_NONE, LIMIT);
    guid_ranges(a, "0+1@1048575!");
    rig_deinit(&r);
}

static struct kw_lookup_guid_response_partition_result look(struct rig_conn *c, int32_t n) {
    struct kw_bytes *ids = malloc((size_t)n * sizeof(*ids));
    uint8_t(*bytes)[16] = malloc((size_t)n * 16);
    for (int32_t i = 0; i < n; i++) {
        guid_of(bytes[i], (uint64_t)i + 1);
        ids[i] = (struct kw_bytes){bytes[i], 16};
    }
    struct kw_lookup_guid_request req;
    struct kw_lookup_guid_request_partition part = {.current_leader_epoch = -1};
    struct kw_lookup_guid_request_topic topic = {.name = kw_str_of("t")};
    struct kw_lookup_guid_response resp;
    kw_msg_init(&kw_lookup_guid_request_desc, &req);
    part.ids.v = ids;
    part.ids.n = n;
    topic.partitions.v = &part;
    topic.partitions.n = 1;
    req.topics.v = &topic;
    req.topics.n = 1;
    rig_call(c, KW_API_LOOKUP_GUID, 0, &req, &resp);
    free(ids);
    free(bytes);
    return resp.topics.v[0].partitions.v[0];
}

static void test_ids_of_a_lookup(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 2);
    guid_expect(guid_put(c, true, GUIDS(IDS(1, LIMIT))), KE_NONE, 0);
    struct kw_lookup_guid_response_partition_result a = look(c, LIMIT + 1);
    assert_int_equal(a.error_code, KE_INVALID_REQUEST);
    holds(a.error_message, "more than 1048576 ids");
    assert_int_equal(a.ids.n, 0);
    a = look(c, LIMIT);
    assert_int_equal(a.error_code, KE_NONE);
    assert_int_equal(a.ids.n, LIMIT);
    for (int32_t i = 0; i < LIMIT; i++) {
        bool stored = i == 0 || i == LIMIT - 1;
        if (a.ids.v[i].state != stored || a.ids.v[i].offset != (!stored ? -1 : i > 0)) fail_msg("id %d: state %d", (int)i, a.ids.v[i].state);
    }
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records_of_a_batch), cmocka_unit_test(test_ids_of_a_lookup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
