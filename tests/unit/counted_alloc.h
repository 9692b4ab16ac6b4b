/* counted_alloc.h - an allocator for tests of what the code under test asks for: how often, how much at once, how much in all. Installed at
 * any time, since it is malloc beneath as the one it takes the place of; the test sets the counts back. Not for threads.
 */
#ifndef TESTS_COUNTED_ALLOC_H
#define TESTS_COUNTED_ALLOC_H

#include <stdlib.h>

#include "base/base.h"

static struct {
    int64_t calls;
    size_t most, sum; /* bytes */
} counted;

static inline void counted_note(size_t n) {
    counted.calls++;
    counted.most = KW_MAX(counted.most, n);
    counted.sum += n;
}
static inline void *counted_malloc(size_t n, void *ctx) {
    (void)ctx;
    counted_note(n);
    return malloc(n);
}
static inline void *counted_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    counted_note(n);
    return realloc(p, n);
}
static inline void counted_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}
static inline void counted_install(void) {
    kw_allocator_set(&(struct kw_allocator){counted_malloc, counted_realloc, counted_free, NULL});
}

#endif
