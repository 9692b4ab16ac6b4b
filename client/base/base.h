/* base.h - the vocabulary of the wire, client and broker code: error codes, strings, bytes, allocation, assertions.
 *
 * Called by everything; calls nothing but libc. No clock, socket, file, thread or random source here or in any core.
 */
#ifndef KW_BASE_H
#define KW_BASE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 0 is success, codes >= -1 are Kafka's own (wire/kerror.h), codes <= -1000 are ours. Results must be checked. */
typedef int32_t kw_err;
#define KW_CHECK __attribute__((warn_unused_result))

enum {
    KW_OK = 0,
    KW_ENOMEM = -1000,    /* an allocation failed, or a configured bound would be passed */
    KW_EDECODE = -1001,   /* bytes do not follow the format */
    KW_ESHORT = -1002,    /* the bytes end before the structure does */
    KW_ELIMIT = -1003,    /* a value is over its limit (decompressed size, nesting, count) */
    KW_ECRC = -1004,      /* a checksum does not match */
    KW_EVERSION = -1005,  /* a version or magic that this code does not speak */
    KW_EINVAL = -1006,    /* a value that the format cannot carry */
    KW_EUNSUPPORTED = -1007, /* a codec that this build left out */
    KW_EIO = -1008,       /* the disk or the network failed below us */
    KW_EBUSY = -1009,     /* not now: something that excludes it is under way */
};

/* Assertions stay on in Release: they guard our own bugs, never input. */
#define KW_ASSERT(x)                                                                                                   \
    do {                                                                                                               \
        if (__builtin_expect(!(x), 0)) kw_assert_failed(#x, __FILE__, __LINE__);                                       \
    } while (0)
_Noreturn void kw_assert_failed(const char *expr, const char *file, int line);

#define KW_LIKELY(x) __builtin_expect(!!(x), 1)
#define KW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KW_COUNTOF(a) (sizeof(a) / sizeof((a)[0]))
#define KW_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
/* The ith of an array of structs that are `stride` bytes apart: a caller's own may be longer than ours. */
#define KW_AT(type, base, stride, i) ((type *)(void *)((char *)(base) + (stride) * (i)))
#define KW_MIN(a, b) ((a) < (b) ? (a) : (b))
#define KW_MAX(a, b) ((a) > (b) ? (a) : (b))

/* A view of text or bytes; len -1 is Kafka's null. Never owns. */
struct kw_str {
    const char *p;
    int32_t len;
};
struct kw_bytes {
    const uint8_t *p;
    int32_t len;
};
struct kw_uuid {
    uint8_t b[16];
};

static inline struct kw_str kw_str_null(void) { return (struct kw_str){NULL, -1}; }
struct kw_str kw_str_of(const char *z); /* NULL gives the null string */
static inline bool kw_str_eq(struct kw_str a, struct kw_str b) {
    return a.len == b.len && (a.len <= 0 || memcmp(a.p, b.p, (size_t)a.len) == 0);
}
static inline bool kw_uuid_eq(struct kw_uuid a, struct kw_uuid b) { return memcmp(a.b, b.b, 16) == 0; }
static inline bool kw_uuid_is_zero(struct kw_uuid a) {
    static const uint8_t zero[16];
    return memcmp(a.b, zero, 16) == 0;
}

/* The allocator: one table for the whole process, set before anything else runs. Each call may return NULL, and every
 * caller says KW_ENOMEM. kw_alloc_fail_after(n) makes the n-th allocation from now fail (n = 0: the next; -1: off); tests only. */
struct kw_allocator {
    void *(*malloc_fn)(size_t size, void *ctx);
    void *(*realloc_fn)(void *p, size_t size, void *ctx);
    void (*free_fn)(void *p, void *ctx);
    void *ctx;
};
void kw_allocator_set(const struct kw_allocator *a);
void kw_alloc_fail_after(int64_t n);
void *kw_malloc(size_t size);
void *kw_calloc(size_t count, size_t size); /* overflow of count*size gives NULL */
void *kw_realloc(void *p, size_t size);
void *kw_memdup(const void *p, size_t size);
void kw_free(void *p);

/* Big-endian loads and stores on unaligned bytes. */
static inline uint16_t kw_load16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t kw_load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t kw_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
static inline void kw_store16(uint8_t *p, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(p, &v, 2);
}
static inline void kw_store32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}
static inline void kw_store64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, 8);
}

/* Intrusive doubly linked list; a node is in at most one list; an initialised list or unlinked node points to itself. */
struct kw_list {
    struct kw_list *next, *prev;
};
static inline void kw_list_init(struct kw_list *l) { l->next = l->prev = l; }
static inline bool kw_list_empty(const struct kw_list *l) { return l->next == l; }
static inline void kw_list_insert_before(struct kw_list *at, struct kw_list *n) {
    n->next = at;
    n->prev = at->prev;
    at->prev->next = n;
    at->prev = n;
}
static inline void kw_list_push(struct kw_list *l, struct kw_list *n) { kw_list_insert_before(l, n); } /* at the tail */
static inline void kw_list_remove(struct kw_list *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    kw_list_init(n);
}
static inline struct kw_list *kw_list_shift(struct kw_list *l) { /* from the head; NULL when empty */
    if (kw_list_empty(l)) return NULL;
    struct kw_list *n = l->next;
    kw_list_remove(n);
    return n;
}

#endif
