/* base.c - the process-wide allocator with its countdown fault, assertion failure, string views. Called by everything. */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>

static void *libc_malloc(size_t size, void *ctx) {
    (void)ctx;
    return malloc(size);
}
static void *libc_realloc(void *p, size_t size, void *ctx) {
    (void)ctx;
    return realloc(p, size);
}
static void libc_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}

static struct kw_allocator allocator = {libc_malloc, libc_realloc, libc_free, NULL};
static _Atomic int64_t fail_after = -1;

void kw_assert_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expr);
    abort();
}

struct kw_str kw_str_of(const char *z) {
    if (!z) return kw_str_null();
    size_t n = strlen(z);
    KW_ASSERT(n <= INT32_MAX);
    return (struct kw_str){z, (int32_t)n};
}

void kw_allocator_set(const struct kw_allocator *a) {
    KW_ASSERT(a->malloc_fn && a->realloc_fn && a->free_fn);
    allocator = *a;
}

void kw_alloc_fail_after(int64_t n) { atomic_store_explicit(&fail_after, n, memory_order_relaxed); }

/* Only the countdown's zero fails: the allocations after it succeed again. */
static bool fault_due(void) {
    if (KW_LIKELY(atomic_load_explicit(&fail_after, memory_order_relaxed) < 0)) return false;
    return atomic_fetch_sub_explicit(&fail_after, 1, memory_order_relaxed) == 0;
}

/* A size of 0 becomes 1, so that NULL always means failure. */
void *kw_malloc(size_t size) {
    if (KW_UNLIKELY(fault_due())) return NULL;
    return allocator.malloc_fn(size ? size : 1, allocator.ctx);
}

void *kw_calloc(size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) return NULL;
    if (KW_UNLIKELY(fault_due())) return NULL;
    if (allocator.malloc_fn == libc_malloc) return calloc(1, n ? n : 1); /* fresh pages come zeroed: no memset */
    void *p = allocator.malloc_fn(n ? n : 1, allocator.ctx);
    if (p) memset(p, 0, n);
    return p;
}

void *kw_realloc(void *p, size_t size) {
    if (KW_UNLIKELY(fault_due())) return NULL;
    return allocator.realloc_fn(p, size ? size : 1, allocator.ctx);
}

void *kw_memdup(const void *p, size_t size) {
    void *d = kw_malloc(size);
    if (d && size) memcpy(d, p, size);
    return d;
}

void kw_free(void *p) {
    if (p) allocator.free_fn(p, allocator.ctx);
}
