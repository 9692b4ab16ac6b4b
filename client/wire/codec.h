/* codec.h - one small table-driven codec for every Kafka message: schema/X.ks files state each message once, schemagen.py turns
 * them into structs (kw_messages.h) and descriptors, and these functions decode and encode any of them in any version.
 *
 * Called by client/core, broker-ref/api, broker-ref/quorum. Calls base/buf, base/arena. KIP-482 (flexible versions, tagged fields).
 */
#ifndef KW_CODEC_H
#define KW_CODEC_H

#include "../base/arena.h"
#include "../base/buf.h"

enum kw_type {
    KW_T_BOOL, KW_T_I8, KW_T_I16, KW_T_U16, KW_T_I32, KW_T_U32, KW_T_I64, KW_T_F64,
    KW_T_UUID, KW_T_STRING, KW_T_BYTES, KW_T_RECORDS, KW_T_STRUCT, KW_T_ARRAY
};

/* A records field: bytes in memory, or (p NULL, len >= 0) bytes that the shell will supply from `ref`; len -1 is null. */
struct kw_records {
    const uint8_t *p;
    int32_t len;
    void *ref;
};

/* What every array field looks like in memory; n -1 is null. The generated struct types v. */
struct kw_array {
    void *v;
    int32_t n;
};

struct kw_field {
    const char *name;       /* Kafka's name, camelCase */
    uint8_t type;           /* enum kw_type */
    uint8_t elem;           /* of an array: the element's kw_type */
    uint8_t ignorable;      /* a non-default value may be dropped silently in versions that lack the field */
    uint8_t flexible_none;  /* keeps its classic form in flexible versions (the request header's clientId) */
    int16_t min, max;       /* versions that carry the field (max INT16_MAX: open) */
    int16_t null_min, null_max;         /* versions in which it may be null; null_min -1: never. A struct with null_min >= 0 is a pointer */
    int16_t tag;            /* -1: not tagged; else tagged in all of its versions */
    uint32_t offset;        /* in the struct */
    int64_t def;            /* default: integers, bools; for strings and arrays -1 is null, 0 is empty; f64: bit pattern */
    const char *def_str;    /* default of a string, where not empty */
    const struct kw_desc *desc; /* of a struct, or of an array's struct elements */
};

struct kw_desc {
    const char *name;
    int16_t api_key;        /* of a request or response; the type of a metadata record; else -1 */
    int16_t min, max;       /* valid versions */
    int16_t flexible_min;   /* first flexible version, INT16_MAX: none */
    uint16_t field_count, tagged_from; /* fields[tagged_from..] are the tagged ones, by rising tag */
    uint32_t size;          /* of the C struct */
    const struct kw_field *fields;
    const void *init;           /* the struct with every field at its default */
    const uint16_t *size_min;   /* smallest encoding, by version - min: what an element of a count must have left */
};

/* Sets every field to its default. */
void kw_msg_init(const struct kw_desc *d, void *msg);

/* An arena takes at most this many bytes for each byte of input (the worst: a one-byte compact string becomes a kw_str). */
#define KW_DECODE_EXPANSION_MAX 40

/* Decodes version `version` of `d` into *msg; everything it points to is a view of the input (strings, bytes, records) or
 * lives in the arena (arrays). Counts are checked against the remaining bytes before any allocation. Unknown tagged fields are
 * skipped by size. Does not demand that the input ends: check kw_in_left(). KW_EDECODE, KW_ESHORT, KW_ENOMEM, KW_EVERSION;
 * *msg then holds the defaults. */
kw_err kw_decode(const struct kw_desc *d, int16_t version, struct kw_in *in, struct kw_arena *a, void *msg) KW_CHECK;

/* Appends the encoding to `out`. A field that the version lacks is left out when it is ignorable or has its default, else
 * KW_EINVAL. Null in a version that cannot carry it: KW_EINVAL. With out->splice, records fields become splices. */
kw_err kw_encode(const struct kw_desc *d, int16_t version, const void *msg, struct kw_out *out) KW_CHECK;

/* The table of APIs that this code can speak. */
struct kw_api {
    int16_t key, min, max;  /* versions of our schema (kbroker advertises its own subset in api/api_versions) */
    int16_t flexible_min;   /* INT16_MAX: never */
    const char *name;       /* "Produce" */
    const struct kw_desc *request, *response;
};
const struct kw_api *kw_api_by_key(int16_t key); /* NULL: unknown */
const struct kw_api *kw_api_by_name(const char *name);
extern const struct kw_api kw_apis[]; /* sorted by key */
extern const size_t kw_api_count;

/* Header versions for an API and its version: request 0 (only ControlledShutdown v0), 1 or 2; response 0 or 1; ApiVersions' response header is always 0. */
int16_t kw_request_header_version(const struct kw_api *api, int16_t version);
int16_t kw_response_header_version(const struct kw_api *api, int16_t version);

/* Metadata records (KIP-631): frame version 1, record type, version, body. */
const struct kw_desc *kw_metadata_record_by_type(int16_t type); /* NULL: unknown */
extern const struct kw_desc *const kw_metadata_records[]; /* sorted by type */
extern const size_t kw_metadata_record_count;

/* Every message of the schemas, for tests and tools. */
extern const struct kw_desc *const kw_messages[];
extern const size_t kw_message_count;

#endif
