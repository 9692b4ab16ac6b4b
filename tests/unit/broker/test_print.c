/* test_print.c - recorded frames as JSON: random messages of every API and version, put into entries and printed, say what the messages hold; records, tagged
 * fields, what cannot be decoded, what is not to be told. Against a JSON library and a reading of the descriptors of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "kw_messages.h"
#include "print.h"
#include "random_msg.h"
#include "wire/batch.h"
#include "wire/frame.h"
#include "wire/message_set.h"

static struct kb_print print = {.bytes_max = 1 << 20};
static struct kw_out line;

static int setup(void **state) {
    (void)state;
    print.compressor = kw_compressor_new();
    kw_out_init(&line);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    kw_compressor_free(print.compressor);
    kw_out_deinit(&line);
    return 0;
}

/* An entry of this frame, which has its length in front of it as on the wire. */
static struct kb_recording_entry entry_of(const struct kw_out *frame, bool response, int16_t key, int16_t version) {
    struct kb_recording_entry e = {.response = response,
                                   .node = 2,
                                   .connection = 12,
                                   .at_us = 1796054862429380,
                                   .took_us = 77,
                                   .api_key = key,
                                   .version = version,
                                   .correlation_id = 7,
                                   .frame_size = (uint32_t)frame->len - 4,
                                   .peer = kw_str_of("127.0.0.1:5000"),
                                   .client_id = kw_str_of("c\"1"),
                                   .piece_count = 1,
                                   .pieces = {{0, (uint32_t)frame->len - 4}},
                                   .data = frame->p + 4,
                                   .data_size = frame->len - 4};
    return e;
}

static json_t *printed(const struct kb_recording_entry *e) {
    json_error_t at;
    kw_out_reset(&line);
    kb_print_entry(&print, e, &line);
    assert_int_equal(line.err, KW_OK);
    json_t *j = json_loadb((const char *)line.p, line.len, JSON_REJECT_DUPLICATES, &at);
    if (!j) fail_msg("%s at %d of %.*s", at.text, at.position, (int)KW_MIN(line.len, (size_t)500), (const char *)line.p);
    return j;
}

/* ---- The same by another way: from the message in memory ---- */

static void same_struct(const struct kw_desc *d, int16_t version, const uint8_t *msg, const json_t *j);

static void same_view(uint8_t type, const void *at, const json_t *j) {
    const struct kw_bytes *b = at; /* laid out as kw_str and the head of kw_records */
    if (b->len < 0) {
        assert_true(json_is_null(j));
    } else if (type == KW_T_STRING) {
        assert_int_equal(json_string_length(j), b->len);
        assert_memory_equal(json_string_value(j), b->p, (size_t)b->len);
    } else if (type == KW_T_RECORDS) {
        assert_int_equal(json_integer_value(json_object_get(j, "size")), b->len);
    } else {
        assert_int_equal(json_string_length(j), 2 * b->len);
        for (int32_t i = 0; i < b->len; i++) {
            char hex[3];
            snprintf(hex, sizeof(hex), "%02x", b->p[i]);
            assert_memory_equal(json_string_value(j) + 2 * i, hex, 2);
        }
    }
}

static size_t same_scalar(uint8_t type, const void *at, const json_t *j) {
    switch (type) {
    case KW_T_BOOL: assert_int_equal(json_is_true(j), *(const bool *)at); return 1;
    case KW_T_I8: assert_int_equal(json_integer_value(j), *(const int8_t *)at); return 1;
    case KW_T_I16: assert_int_equal(json_integer_value(j), *(const int16_t *)at); return 2;
    case KW_T_U16: assert_int_equal(json_integer_value(j), *(const uint16_t *)at); return 2;
    case KW_T_I32: assert_int_equal(json_integer_value(j), *(const int32_t *)at); return 4;
    case KW_T_U32: assert_int_equal(json_integer_value(j), *(const uint32_t *)at); return 4;
    case KW_T_I64: assert_true(json_integer_value(j) == *(const int64_t *)at); return 8;
    case KW_T_F64: assert_true(json_number_value(j) == *(const double *)at); return 8;
    default: assert_int_equal(json_string_length(j), 22); return 16;
    }
}

static void same_array(const struct kw_field *f, int16_t version, const uint8_t *at, const json_t *j) {
    struct kw_array a;
    memcpy(&a, at, sizeof(a));
    if (a.n < 0) {
        assert_true(json_is_null(j));
        return;
    }
    assert_int_equal(json_array_size(j), a.n);
    const uint8_t *v = a.v;
    for (int32_t i = 0; i < a.n; i++) {
        const json_t *x = json_array_get(j, (size_t)i);
        if (f->elem == KW_T_STRUCT) {
            same_struct(f->desc, version, v, x);
            v += f->desc->size;
        } else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES) {
            same_view(f->elem, v, x);
            v += sizeof(struct kw_str);
        } else {
            v += same_scalar(f->elem, v, x);
        }
    }
}

static void same_struct(const struct kw_desc *d, int16_t version, const uint8_t *msg, const json_t *j) {
    size_t fields = 0;
    assert_true(json_is_object(j));
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        const uint8_t *at = msg + f->offset, *s = at;
        const json_t *x = json_object_get(j, f->name);
        bool here = version >= f->min && version <= f->max;
        if (!here || (f->tag >= 0 && !x)) { /* a tagged one at its default is not sent */
            assert_null(x);
            continue;
        }
        if (!x) fail_msg("%s v%d: %s is missing", d->name, version, f->name);
        fields++;
        if (f->type == KW_T_STRUCT && f->null_min >= 0) memcpy(&s, at, sizeof(s));
        if (f->type == KW_T_STRUCT && !s)
            assert_true(json_is_null(x));
        else if (f->type == KW_T_STRUCT)
            same_struct(f->desc, version, s, x);
        else if (f->type == KW_T_ARRAY)
            same_array(f, version, at, x);
        else if (f->type == KW_T_STRING || f->type == KW_T_BYTES || f->type == KW_T_RECORDS)
            same_view(f->type, at, x);
        else
            same_scalar(f->type, at, x);
    }
    assert_int_equal(json_object_size(j), fields);
}

static void check_message(const struct kw_api *api, bool response, int16_t version, const void *msg, size_t *tags) {
    struct kw_out frame;
    kw_out_init(&frame);
    kw_err err = response ? kw_frame_response(&frame, api, version, 7, msg) : kw_frame_request(&frame, api, version, 7, kw_str_of("c\"1"), msg);
    assert_int_equal(err, KW_OK);
    struct kb_recording_entry e = entry_of(&frame, response, api->key, version);
    json_t *j = printed(&e);
    assert_string_equal(json_string_value(json_object_get(j, "api")), api->name);
    assert_string_equal(json_string_value(json_object_get(j, "kind")), response ? "response" : "request");
    assert_string_equal(json_string_value(json_object_get(j, "client_id")), "c\"1");
    assert_string_equal(json_string_value(json_object_get(j, "at")), "2026-11-30T16:07:42.429380Z");
    assert_int_equal(json_integer_value(json_object_get(j, "size")), e.frame_size);
    assert_null(json_object_get(j, "error"));
    assert_null(json_object_get(j, "trailing"));
    const struct kw_desc *d = response ? api->response : api->request;
    same_struct(d, version, msg, json_object_get(j, "body"));
    for (size_t i = d->tagged_from; i < d->field_count; i++) *tags += json_object_get(json_object_get(j, "body"), d->fields[i].name) != NULL;
    json_decref(j);
    /* Cut anywhere it is told, or an earlier end makes sense; nothing breaks. */
    for (size_t cut = 1; cut < 12 && cut < e.frame_size; cut++) {
        struct kb_recording_entry less = e;
        less.frame_size = less.pieces[0].len = (uint32_t)(e.frame_size - cut);
        less.data_size = e.data_size - cut;
        json_decref(printed(&less));
    }
    kw_out_deinit(&frame);
}

static void test_every_message(void **state) {
    (void)state;
    struct kw_rng rng;
    size_t tags = 0;
    kw_rng_init(&rng, 5);
    for (size_t i = 0; i < kw_api_count; i++)
        for (int16_t v = kw_apis[i].min; v <= kw_apis[i].max; v++)
            for (int k = 0; k < 24; k++) {
                const struct kw_desc *d = k % 2 ? kw_apis[i].response : kw_apis[i].request;
                struct kw_arena arena;
                kw_arena_init(&arena, 0);
                check_message(&kw_apis[i], k % 2, v, random_message(d, v, &rng, &arena, k < 2 ? 0 : 4), &tags);
                kw_arena_deinit(&arena);
            }
    assert_true(tags > 100); /* tagged fields are shown at all */
}

/* ---- Records ---- */

static size_t make_batch(uint8_t *p, size_t cap, int codec, const uint8_t guid[16]) {
    uint8_t plain[2000], *at = plain + KW_BATCH_HEADER_SIZE;
    struct kw_header_view h[] = {{kw_str_of("guid"), {guid, 16}}, {kw_str_of("n"), {NULL, -1}}};
    for (int32_t i = 0; i < 3; i++) {
        struct kw_record_in rec = {.offset_delta = i, .timestamp_delta = i, .key = {(const uint8_t *)"k", i == 1 ? -1 : 1},
                                   .value = {(const uint8_t *)"\xff\0v", i == 2 ? 3 : 0}, .headers = h, .header_count = i == 0 ? 2 : 0};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    size_t n = (size_t)(at - plain);
    struct kw_batch_header head = {.base_offset = 40, .length = (int32_t)(n - KW_BATCH_OVERHEAD), .leader_epoch = 3, .magic = 2, .last_offset_delta = 2,
                                   .base_timestamp = 1000, .max_timestamp = 1002, .producer_id = 9, .producer_epoch = 1, .base_sequence = 4, .record_count = 3};
    kw_batch_write_header(plain, &head);
    kw_batch_crc_set(plain, n);
    if (codec == KW_CODEC_NONE) {
        memcpy(p, plain, n);
        return n;
    }
    assert_int_equal(kw_batch_compress(print.compressor, codec, KW_LEVEL_DEFAULT, plain, n, p, cap, &n), KW_OK);
    return n;
}

static json_t *records_of(json_t *j) {
    json_t *topic = json_array_get(json_object_get(json_object_get(j, "body"), "topicData"), 0);
    return json_object_get(json_array_get(json_object_get(topic, "partitionData"), 0), "records");
}

/* The frame of a Produce with these records; the caller frees it. */
static struct kw_out produce(const uint8_t *p, size_t n, struct kb_recording_entry *e) {
    struct kw_produce_request q;
    struct kw_produce_request_topic_produce_data t;
    struct kw_produce_request_partition_produce_data part;
    struct kw_out frame;
    memset(&t, 0, sizeof(t));
    memset(&part, 0, sizeof(part));
    kw_out_init(&frame);
    kw_msg_init(&kw_produce_request_desc, &q);
    part.records = (struct kw_records){p, (int32_t)n, NULL};
    t.name = kw_str_of("t");
    t.partition_data.v = &part;
    t.partition_data.n = 1;
    q.topic_data.v = &t;
    q.topic_data.n = 1;
    assert_int_equal(kw_frame_request(&frame, kw_api_by_key(KW_API_PRODUCE), 9, 7, kw_str_of("c"), &q), KW_OK);
    *e = entry_of(&frame, false, KW_API_PRODUCE, 9);
    return frame;
}

static void test_records(void **state) {
    (void)state;
    uint8_t p[8000], guid[16];
    for (uint8_t i = 0; i < 16; i++) guid[i] = (uint8_t)(i * 17);
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        struct kb_recording_entry e;
        size_t n = make_batch(p, sizeof(p), codec, guid);
        size_t twice = n + make_batch(p + n, sizeof(p) - n, KW_CODEC_NONE, guid);
        struct kw_out frame = produce(p, twice - 5, &e);
        for (int all = 0; all < 2; all++) {
            print.records = all;
            json_t *j = printed(&e), *r = records_of(j), *b = json_array_get(json_object_get(r, "batches"), 0);
            assert_int_equal(json_array_size(json_object_get(r, "batches")), 1);
            assert_int_equal(json_integer_value(json_object_get(r, "count")), 3);
            assert_int_equal(json_integer_value(json_object_get(r, "cutBytes")), twice - 5 - n);
            assert_int_equal(json_integer_value(json_object_get(b, "baseOffset")), 40);
            assert_int_equal(json_integer_value(json_object_get(b, "lastOffset")), 42);
            assert_int_equal(json_integer_value(json_object_get(b, "producerId")), 9);
            assert_int_equal(json_integer_value(json_object_get(b, "baseSequence")), 4);
            assert_string_equal(json_string_value(json_object_get(b, "codec")), kw_codec_name(codec));
            assert_null(json_object_get(b, "crc"));
            json_t *v = json_object_get(b, "values");
            assert_int_equal(v != NULL, all);
            if (all) {
                assert_int_equal(json_array_size(v), 3);
                json_t *first = json_array_get(v, 0), *last = json_array_get(v, 2), *h = json_object_get(first, "headers");
                assert_string_equal(json_string_value(json_object_get(json_array_get(h, 0), "value")), "00112233-4455-6677-8899-aabbccddeeff");
                assert_true(json_is_null(json_object_get(json_array_get(h, 1), "value")));
                assert_true(json_is_null(json_object_get(json_array_get(v, 1), "key")));
                assert_string_equal(json_string_value(json_object_get(json_object_get(last, "value"), "hex")), "ff0076");
                assert_int_equal(json_integer_value(json_object_get(last, "timestamp")), 1002);
            }
            json_decref(j);
        }
        kw_out_deinit(&frame);
    }
    print.records = false;
}

static void test_old_messages_and_damage(void **state) {
    (void)state;
    struct kw_out set;
    struct kb_recording_entry e;
    uint8_t p[2000], guid[16] = {0};
    kw_out_init(&set);
    for (int8_t magic = 0; magic < 2; magic++)
        assert_int_equal(kw_message_write(&set, magic, 5 + magic, 100, 0, (struct kw_bytes){NULL, -1}, (struct kw_bytes){(const uint8_t *)"x", 1}), KW_OK);
    print.records = true;
    struct kw_out frame = produce(set.p, set.len, &e);
    json_t *j = printed(&e), *b = json_object_get(records_of(j), "batches");
    assert_int_equal(json_array_size(b), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(b, 1), "offset")), 6);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(json_array_get(b, 1), "values"), 0), "value")), "x");
    json_decref(j);
    kw_out_deinit(&frame);
    kw_out_deinit(&set);
    size_t n = make_batch(p, sizeof(p), KW_CODEC_NONE, guid);
    p[n - 1] ^= 1; /* a turned bit: told, and shown all the same */
    frame = produce(p, n, &e);
    j = printed(&e);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(records_of(j), "batches"), 0), "crc")), "wrong");
    json_decref(j);
    kw_out_deinit(&frame);
    p[KW_BATCH_MAGIC] = 7;
    frame = produce(p, n, &e);
    j = printed(&e);
    assert_non_null(json_object_get(records_of(j), "unreadable"));
    json_decref(j);
    kw_out_deinit(&frame);
    print.records = false;
}

/* The end of a large answer was not stored: what was is shown, the rest counted. */
static void test_a_gap(void **state) {
    (void)state;
    uint8_t p[4000], guid[16] = {0}, stored[4000];
    struct kb_recording_entry e;
    size_t one = make_batch(p, sizeof(p), KW_CODEC_NONE, guid), n = one + make_batch(p + one, sizeof(p) - one, KW_CODEC_NONE, guid);
    struct kw_out frame = produce(p, n, &e);
    uint8_t *at = memmem(frame.p, frame.len, p, one);
    size_t head = (size_t)(at - frame.p) - 4, tail = frame.len - 4 - head - n;
    assert_true(tail > 0);
    e.pieces[0] = (struct kb_piece){0, (uint32_t)(head + one + 10)}; /* the second batch is not there but for 10 bytes; what follows it is */
    e.pieces[1] = (struct kb_piece){(uint32_t)(head + n), (uint32_t)tail};
    e.piece_count = 2;
    memcpy(stored, frame.p + 4, e.pieces[0].len);
    memcpy(stored + e.pieces[0].len, frame.p + frame.len - tail, tail);
    e.data = stored;
    e.data_size = e.pieces[0].len + tail;
    json_t *j = printed(&e), *r = records_of(j);
    assert_int_equal(json_array_size(json_object_get(r, "batches")), 1);
    assert_int_equal(json_integer_value(json_object_get(r, "notRecordedBytes")), n - one - 10);
    assert_int_equal(json_integer_value(json_object_get(j, "not_recorded")), n - one - 10);
    assert_null(json_object_get(j, "error"));
    json_decref(j);
    kw_out_deinit(&frame);
}

/* ---- What is odd ---- */

static void test_unknown_tags(void **state) {
    (void)state;
    struct kw_heartbeat_request q;
    struct kw_out frame;
    kw_msg_init(&kw_heartbeat_request_desc, &q);
    q.group_id = kw_str_of("g");
    q.member_id = kw_str_of("m");
    kw_out_init(&frame);
    assert_int_equal(kw_frame_request(&frame, kw_api_by_key(KW_API_HEARTBEAT), 4, 7, kw_str_of("c"), &q), KW_OK);
    assert_int_equal(frame.p[frame.len - 1], 0); /* no tagged field */
    frame.p[frame.len - 1] = 2;
    kw_out_bytes(&frame, "\x05\x02\xab\xcd\x64\x00", 6);
    struct kb_recording_entry e = entry_of(&frame, false, KW_API_HEARTBEAT, 4);
    json_t *j = printed(&e), *tags = json_object_get(json_object_get(j, "body"), "unknownTaggedFields");
    assert_int_equal(json_array_size(tags), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(tags, 0), "tag")), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(tags, 0), "data")), "abcd");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(tags, 1), "tag")), 100);
    json_decref(j);
    kw_out_bytes(&frame, "xyz", 3);
    e = entry_of(&frame, false, KW_API_HEARTBEAT, 4);
    j = printed(&e);
    assert_string_equal(json_string_value(json_object_get(j, "trailing")), "78797a");
    json_decref(j);
    kw_out_deinit(&frame);
}

static const char *error_of(json_t *j) {
    return json_string_value(json_object_get(j, "error"));
}

static void test_what_cannot_be_decoded(void **state) {
    (void)state;
    struct kw_api_versions_response a;
    struct kw_out frame;
    kw_out_init(&frame);
    kw_out_bytes(&frame, "\0\0\0\x0c\x7f\x7f\0\0\0\0\0\7\xff\xffzz", 16);
    struct kb_recording_entry e = entry_of(&frame, false, 0x7f7f, 0);
    json_t *j = printed(&e);
    assert_int_equal(json_integer_value(json_object_get(j, "api")), 0x7f7f);
    assert_non_null(strstr(error_of(j), "API"));
    assert_true(json_is_null(json_object_get(j, "body")));
    assert_string_equal(json_string_value(json_object_get(j, "bytes")), "7f7f000000000007ffff7a7a");
    json_decref(j);
    kw_out_reset(&frame);
    kw_msg_init(&kw_api_versions_response_desc, &a); /* KIP-511: the answer to a version that nobody knows is of version 0 */
    a.error_code = 35;
    assert_int_equal(kw_frame_response(&frame, kw_api_by_key(KW_API_API_VERSIONS), 0, 7, &a), KW_OK);
    e = entry_of(&frame, true, KW_API_API_VERSIONS, 99);
    j = printed(&e);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "body"), "errorCode")), 35);
    json_decref(j);
    e = entry_of(&frame, true, KW_API_METADATA, 99);
    j = printed(&e);
    assert_non_null(strstr(error_of(j), "version"));
    json_decref(j);
    e = entry_of(&frame, true, KW_API_METADATA, 12);
    j = printed(&e);
    assert_non_null(strstr(error_of(j), "the body"));
    json_decref(j);
    kw_out_deinit(&frame);
}

static void test_secrets(void **state) {
    (void)state;
    struct kw_incremental_alter_configs_request q;
    struct kw_incremental_alter_configs_request_alterable_config kv[] = {
        {.name = kw_str_of("listener.name.x.ssl.Keystore.Password"), .value = kw_str_of("hunter2")},
        {.name = kw_str_of("retention.ms"), .value = kw_str_of("5")}};
    struct kw_incremental_alter_configs_request_alter_configs_resource res = {
        .resource_type = 4, .resource_name = kw_str_of("1"), .configs = {.v = kv, .n = 2}};
    struct kw_out frame;
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &q);
    q.resources.v = &res;
    q.resources.n = 1;
    kw_out_init(&frame);
    assert_int_equal(kw_frame_request(&frame, kw_api_by_key(KW_API_INCREMENTAL_ALTER_CONFIGS), 1, 7, kw_str_of("c"), &q), KW_OK);
    struct kb_recording_entry e = entry_of(&frame, false, KW_API_INCREMENTAL_ALTER_CONFIGS, 1);
    json_decref(printed(&e));
    assert_null(memmem(line.p, line.len, "hunter2", 7));
    assert_non_null(memmem(line.p, line.len, "\"value\":\"(masked)\"", 18));
    assert_non_null(memmem(line.p, line.len, "\"value\":\"5\"", 11));
    struct kb_part part = {.p = frame.p, .len = frame.len};
    struct kb_recorded r = {.api_key = 36, .parts = &part, .part_count = 1, .skip = 4, .size = frame.len - 4}; /* SaslAuthenticate */
    e = entry_of(&frame, false, 36, 2);
    kb_recording_choose(&r, &e);
    assert_int_equal(e.data_size, 0);
    json_t *j = printed(&e);
    assert_string_equal(json_string_value(json_object_get(j, "body")), "(masked)");
    json_decref(j);
    kw_out_deinit(&frame);
}

static void test_text(void **state) {
    (void)state;
    static const struct {
        const char *p;
        int n;
        const char *json;
    } v[] = {{"a\"\\\n\x01\x7f", 6, "\"a\\\"\\\\\\u000a\\u0001\\u007f\""},
             {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
             {"\xc3", 1, "\"\\ufffd\""}, {"\xc0\x80", 2, "\"\\ufffd\\ufffd\""}, {"\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\""},
             {"\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, {"\xe0\x80\x80", 3, "\"\\ufffd\\ufffd\\ufffd\""}};
    static const struct {
        int64_t us;
        const char *text;
    } times[] = {{0, "\"1970-01-01T00:00:00.000000Z\""}, {951782400000000, "\"2000-02-29T00:00:00.000000Z\""}, {-1, "\"1969-12-31T23:59:59.999999Z\""},
                 {4107542399123456, "\"2100-02-28T23:59:59.123456Z\""}, {4107542400000000, "\"2100-03-01T00:00:00.000000Z\""}};
    for (size_t i = 0; i < KW_COUNTOF(v); i++) {
        kw_out_reset(&line);
        kb_json_string(&line, v[i].p, (size_t)v[i].n);
        assert_int_equal(line.len, strlen(v[i].json));
        assert_memory_equal(line.p, v[i].json, line.len);
    }
    for (size_t i = 0; i < KW_COUNTOF(times); i++) {
        kw_out_reset(&line);
        kb_json_time(&line, times[i].us);
        assert_int_equal(line.len, strlen(times[i].text));
        assert_memory_equal(line.p, times[i].text, line.len);
    }
    kw_out_reset(&line);
    kb_json_value(&line, (const uint8_t *)"ab\xc3\xa9", 4, 3); /* not amidst a letter */
    assert_memory_equal(line.p, "\"ab\xe2\x80\xa6(+2 bytes)\"", line.len);
    kb_json_time(&line, INT64_MIN);
    kb_json_time(&line, INT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_message), cmocka_unit_test(test_records), cmocka_unit_test(test_old_messages_and_damage),
        cmocka_unit_test(test_a_gap),         cmocka_unit_test(test_unknown_tags), cmocka_unit_test(test_what_cannot_be_decoded),
        cmocka_unit_test(test_secrets),       cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
