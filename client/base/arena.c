/* arena.c - chunks of doubling size, bumped through. Called by wire/codec and by whatever builds a message. Calls base. */
#include "arena.h"

enum { FIRST_SIZE = 4096, GROWN_SIZE_MAX = 65536, KEPT_SIZE_MAX = 65536 };

struct kw_arena_chunk {
    struct kw_arena_chunk *next; /* older */
    size_t cap;
    _Alignas(16) uint8_t data[];
};

void kw_arena_init(struct kw_arena *a, size_t budget) {
    *a = (struct kw_arena){.budget = budget};
}

static void use_chunk(struct kw_arena *a, struct kw_arena_chunk *c) {
    a->chunks = c;
    a->p = c->data;
    a->end = c->data + c->cap;
}

static bool add_chunk(struct kw_arena *a, size_t size) {
    size_t cap = a->chunks ? KW_MIN(a->chunks->cap * 2, (size_t)GROWN_SIZE_MAX) : (size_t)FIRST_SIZE;
    cap = KW_MAX(cap, size);
    if (cap > SIZE_MAX - sizeof(struct kw_arena_chunk)) return false;
    struct kw_arena_chunk *c = kw_malloc(sizeof *c + cap);
    if (!c) return false;
    c->next = a->chunks;
    c->cap = cap;
    use_chunk(a, c);
    return true;
}

void *kw_arena_alloc(struct kw_arena *a, size_t size) {
    if (size > SIZE_MAX - 7) return NULL;
    size = (size + 7) & ~(size_t)7;
    if (a->budget && (a->used > a->budget || size > a->budget - a->used)) return NULL;
    if (!a->chunks || size > (size_t)(a->end - a->p)) {
        if (!add_chunk(a, size)) return NULL;
    }
    void *p = a->p;
    a->p += size;
    a->used += size;
    return p;
}

void *kw_arena_calloc(struct kw_arena *a, size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) return NULL;
    void *p = kw_arena_alloc(a, n);
    if (p) memset(p, 0, n);
    return p;
}

void *kw_arena_dup(struct kw_arena *a, const void *p, size_t size) {
    void *d = kw_arena_alloc(a, size);
    if (d && size) memcpy(d, p, size);
    return d;
}

static void free_chunks(struct kw_arena_chunk *c) {
    while (c) {
        struct kw_arena_chunk *next = c->next;
        kw_free(c);
        c = next;
    }
}

void kw_arena_reset(struct kw_arena *a) {
    struct kw_arena_chunk *c = a->chunks;
    while (c && c->next) {
        struct kw_arena_chunk *next = c->next;
        kw_free(c);
        c = next;
    }
    a->used = 0;
    a->chunks = NULL;
    a->p = a->end = NULL;
    if (!c) return;
    if (c->cap > KEPT_SIZE_MAX) kw_free(c); /* one large message must not pin its memory */
    else use_chunk(a, c);
}

void kw_arena_deinit(struct kw_arena *a) {
    free_chunks(a->chunks);
    *a = (struct kw_arena){.budget = a->budget};
}
