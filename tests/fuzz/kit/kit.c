/* kit.c - see kit.h. Called by the targets that drive a whole core. */
#include "kit.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { EDITS_MAX = 8 };

_Noreturn void fuzz_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

/* ---- Choices ---- */

uint64_t fuzz_bytes(struct fuzz_src *s, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | fuzz_u8(s);
    return v;
}

bool fuzz_op_next(struct fuzz_src *input, struct fuzz_op *op) {
    if (fuzz_left(input) < FUZZ_OP_HEAD) return false;
    op->kind = fuzz_u8(input);
    op->arg = fuzz_u8(input);
    size_t n = fuzz_u8(input);
    n = KW_MIN(n, fuzz_left(input));
    op->src = (struct fuzz_src){input->p, input->p + n};
    input->p += n;
    return true;
}

size_t fuzz_edit(struct fuzz_src *s, uint8_t *p, size_t n) {
    static const uint8_t special[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x10, 0x20};
    for (int i = 0; i < EDITS_MAX && fuzz_left(s) >= 3 && n > 0; i++) {
        uint8_t how = fuzz_u8(s);
        size_t at = fuzz_u16(s) % n;
        switch (how & 7) {
        case 0:
        case 1:
        case 2: /* most inputs are more telling with one byte changed than with their structure shifted */
            p[at] = special[how >> 3 & 7];
            break;
        case 3:
            p[at] ^= (uint8_t)(1u << (how >> 3 & 7));
            break;
        case 4:
            p[at] = fuzz_u8(s);
            break;
        case 5:
            p[at] = (uint8_t)(p[at] + (int8_t)how / 8);
            break;
        case 6:
            n = at;
            break;
        default:
            memmove(p + at + 1, p + at, n - at);
            p[at] = fuzz_u8(s);
            n++;
        }
    }
    return n;
}

/* ---- Memory ---- */

struct fuzz_memory fuzz_memory;

static void take(size_t n) {
    struct fuzz_memory *m = &fuzz_memory;
    m->live += n;
    if (m->live > m->peak) m->peak = m->live;
    if (m->live_max && m->live > m->live_max) fuzz_fail("%zu bytes in use, at most %zu can be justified", m->live, m->live_max);
}
static void check_one(size_t n) {
    if (fuzz_memory.one_max && n > fuzz_memory.one_max)
        fuzz_fail("an allocation of %zu bytes, at most %zu can be justified", n, fuzz_memory.one_max);
}

static void *counted_malloc(size_t n, void *ctx) {
    (void)ctx;
    check_one(n);
    void *p = malloc(n);
    if (p) take(malloc_usable_size(p));
    return p;
}
static void *counted_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    check_one(n);
    size_t before = p ? malloc_usable_size(p) : 0;
    void *q = realloc(p, n);
    if (!q) return NULL;
    fuzz_memory.live -= before;
    take(malloc_usable_size(q));
    return q;
}
static void counted_free(void *p, void *ctx) {
    (void)ctx;
    fuzz_memory.live -= malloc_usable_size(p);
    free(p);
}

void fuzz_memory_count(void) {
    static const struct kw_allocator counting = {counted_malloc, counted_realloc, counted_free, NULL};
    static bool on;
    if (!on) kw_allocator_set(&counting);
    on = true;
}
