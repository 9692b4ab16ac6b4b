/* kit.h - what the targets that drive a whole core share: a source of choices, scripts of operations, and a bound on memory.
 *
 * An input is a head of a few bytes and then operations: kind, argument, length of its bytes, bytes. Whatever the bytes are they mean
 * something, so that a mutation in one operation leaves the others as they were. mutate.c changes inputs operation by operation.
 */
#ifndef FUZZ_KIT_H
#define FUZZ_KIT_H

#include "base/base.h"

/* ---- Choices: bytes of the input, zeros once they have run out ---- */

struct fuzz_src {
    const uint8_t *p, *end;
};
static inline size_t fuzz_left(const struct fuzz_src *s) { return (size_t)(s->end - s->p); }
static inline uint8_t fuzz_u8(struct fuzz_src *s) { return s->p < s->end ? *s->p++ : 0; }
static inline uint16_t fuzz_u16(struct fuzz_src *s) {
    uint16_t hi = fuzz_u8(s);
    return (uint16_t)(hi << 8 | fuzz_u8(s));
}
uint64_t fuzz_bytes(struct fuzz_src *s, int n); /* big-endian, n <= 8 */

struct fuzz_op {
    uint8_t kind, arg;
    struct fuzz_src src;
};
enum { FUZZ_OP_HEAD = 3 };
bool fuzz_op_next(struct fuzz_src *input, struct fuzz_op *op);

/* Up to eight changes of the bytes at p, drawn from src; returns the size, at most what it was plus 8 (there must be room). */
size_t fuzz_edit(struct fuzz_src *s, uint8_t *p, size_t n);

/* ---- Memory: every allocation of the product is counted; one that passes the bound aborts where it is made ---- */

struct fuzz_memory {
    size_t live, peak;
    size_t live_max, one_max; /* 0: no bound */
};
extern struct fuzz_memory fuzz_memory;
void fuzz_memory_count(void); /* from now on; may be called again */

/* Fails with a text on stderr. */
_Noreturn void fuzz_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define FUZZ_CHECK(x, ...)                                                                                                                 \
    do {                                                                                                                                   \
        if (!(x)) fuzz_fail(__VA_ARGS__);                                                                                                  \
    } while (0)

#endif
