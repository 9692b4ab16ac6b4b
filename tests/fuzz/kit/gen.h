/* gen.h - any message of the schemas out of a source of choices, and record batches to go with them.
 *
 * Each field draws a byte: 0 keeps what is there, so that an exhausted source leaves the message as it was. A fresh message begins as one
 * that means something: one element in each array, names of the dictionary, and the values of a small table (acks, sizes, waits).
 */
#ifndef FUZZ_GEN_H
#define FUZZ_GEN_H

#include "kit.h"
#include "wire/codec.h"

struct fuzz_dict {
    const char *const *texts; /* at least one */
    size_t text_count;
    const struct kw_uuid *ids; /* at least one */
    size_t id_count;
    const int64_t *numbers;
    size_t number_count;
    void (*records)(void *ctx, struct fuzz_src *s, struct kw_arena *a, struct kw_records *out); /* NULL: left alone */
    void *ctx;
};

/* Changes the fields that the version has. `fresh`: msg holds the defaults. */
void fuzz_message(const struct kw_desc *d, int16_t version, const struct fuzz_dict *dict, struct fuzz_src *s, struct kw_arena *a, void *msg,
                  bool fresh);

/* Records as they lie in a request, an answer or a segment: batches v2, message sets, or bytes. Most are sound; what is not was damaged
 * before or behind the CRC. */
struct fuzz_records {
    int64_t base_offset, timestamp; /* of the first; base_offset moves on behind the last */
    int32_t leader_epoch;
    bool v2_only;                   /* as in a log of today */
    size_t body_max;                /* of one batch's records, roughly */
};
struct kw_compressor *fuzz_compressor(void); /* the fuzzer's own, until the run's end */
void fuzz_compressor_drop(void);
struct kw_bytes fuzz_records_make(struct fuzz_src *s, struct fuzz_records *r, struct kw_arena *a);

#endif
