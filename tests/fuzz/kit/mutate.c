/* mutate.c - libFuzzer's mutations, aware of operations: one is changed, added, left out, moved, while the others stay as they are.
 * Linked into fuzzers only. The target says how many bytes come before the first operation. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kit.h"

extern const size_t fuzz_head_size;
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

enum { OPS_MAX = 256, NEW_MAX = 40 };

struct range {
    size_t at, size;
};

static size_t split(const uint8_t *data, size_t size, struct range *v) {
    size_t n = 0;
    for (size_t at = fuzz_head_size; n < OPS_MAX && at + FUZZ_OP_HEAD <= size;) {
        size_t whole = FUZZ_OP_HEAD + data[at + 2];
        if (whole > size - at) whole = size - at;
        v[n++] = (struct range){at, whole};
        at += whole;
    }
    return n;
}

static size_t insert(uint8_t *data, size_t size, size_t max_size, size_t at, const uint8_t *p, size_t n) {
    if (size + n > max_size) return size;
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, p, n);
    return size + n;
}

static size_t insert_new(uint8_t *data, size_t size, size_t max_size, size_t at, struct kw_rng *rng) {
    uint8_t op[FUZZ_OP_HEAD + NEW_MAX];
    size_t n = kw_rng_below(rng, NEW_MAX);
    for (size_t i = 0; i < sizeof op; i++) op[i] = kw_rng_below(rng, 3) ? (uint8_t)kw_rng_next(rng) : (uint8_t)kw_rng_below(rng, 32);
    op[2] = (uint8_t)n;
    return insert(data, size, max_size, at, op, FUZZ_OP_HEAD + n);
}

static size_t insert_copy(uint8_t *data, size_t size, size_t max_size, size_t at, struct range from) {
    uint8_t op[FUZZ_OP_HEAD + 255];
    memcpy(op, data + from.at, from.size);
    if (from.size < FUZZ_OP_HEAD) return size;
    op[2] = (uint8_t)(from.size - FUZZ_OP_HEAD);
    return insert(data, size, max_size, at, op, from.size);
}

static size_t take_out(uint8_t *data, size_t size, struct range r) {
    memmove(data + r.at, data + r.at + r.size, size - r.at - r.size);
    return size - r.size;
}

/* The bytes of one operation, by libFuzzer's own means: dictionaries, what comparisons asked for, and so on. */
static size_t change(uint8_t *data, size_t size, size_t max_size, struct range r) {
    uint8_t body[256];
    size_t n = r.size - FUZZ_OP_HEAD, room = max_size - size < 255 - n ? n + (max_size - size) : 255;
    memcpy(body, data + r.at + FUZZ_OP_HEAD, n);
    if (room == 0) return size;
    size_t now = LLVMFuzzerMutate(body, n, room), rest = r.at + r.size;
    memmove(data + r.at + FUZZ_OP_HEAD + now, data + rest, size - rest);
    memcpy(data + r.at + FUZZ_OP_HEAD, body, now);
    data[r.at + 2] = (uint8_t)now;
    return size - n + now;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    struct range v[OPS_MAX];
    struct kw_rng rng;
    kw_rng_init(&rng, seed);
    while (size < fuzz_head_size && size < max_size) data[size++] = 0;
    size_t n = split(data, size, v);
    if (n == 0) return insert_new(data, size, max_size, size, &rng);
    struct range r = v[kw_rng_below(&rng, n)], other = v[kw_rng_below(&rng, n)];
    switch (kw_rng_below(&rng, 16)) {
    case 0:
        return LLVMFuzzerMutate(data, size, max_size);
    case 1:
        return fuzz_head_size ? (data[kw_rng_below(&rng, fuzz_head_size)] = (uint8_t)kw_rng_next(&rng), size) : size;
    case 2:
    case 3:
    case 4:
        return insert_new(data, size, max_size, kw_rng_below(&rng, 2) ? r.at : size, &rng);
    case 5:
    case 6:
        return take_out(data, size, r);
    case 7:
    case 8:
        return insert_copy(data, size, max_size, other.at, r);
    case 9:
        data[r.at + kw_rng_below(&rng, 2)] = (uint8_t)kw_rng_next(&rng);
        return size;
    default:
        return r.size >= FUZZ_OP_HEAD ? change(data, size, max_size, r) : size;
    }
}
