/* index.c - offset and time index of one segment. Called by segment, append, read, recover; calls base/crc32c. */
#include "index.h"

#include "base/crc32c.h"

void kb_index_deinit(struct kb_index *x) {
    kw_free(x->p);
    memset(x, 0, sizeof(*x));
}

kw_err kb_index_reserve(struct kb_index *x, size_t bytes) {
    size_t need = x->len + bytes;
    if (need <= x->cap) return KW_OK;
    size_t cap = x->cap < 96 ? 96 : x->cap + x->cap / 2;
    if (cap > x->cap + (64 << 10)) cap = x->cap + (64 << 10); /* large ones grow by pages: no doubling of what is nearly full */
    if (cap < need) cap = need;
    uint8_t *p = kw_realloc(x->p, cap);
    if (!p) return KW_ENOMEM;
    x->p = p;
    x->cap = cap;
    return KW_OK;
}

void kb_index_trim(struct kb_index *x) {
    if (x->len == x->cap) return;
    if (!x->len) {
        kb_index_deinit(x);
        return;
    }
    uint8_t *p = kw_realloc(x->p, x->len);
    if (!p) return; /* it only stays larger */
    x->p = p;
    x->cap = x->len;
}

uint32_t kb_index_sum(const struct kb_index *offsets, const struct kb_index *times) {
    return kw_crc32c(kw_crc32c(0, offsets->p, offsets->len), times->p, times->len);
}

static int64_t offset_at(const struct kb_index *x, size_t i) { return kw_load32(x->p + i * KB_OFFSET_ENTRY); }
static int64_t position_at(const struct kb_index *x, size_t i) { return kw_load32(x->p + i * KB_OFFSET_ENTRY + 4); }
static int64_t time_at(const struct kb_index *x, size_t i) { return (int64_t)kw_load64(x->p + i * KB_TIME_ENTRY); }
static int64_t time_offset_at(const struct kb_index *x, size_t i) { return kw_load32(x->p + i * KB_TIME_ENTRY + 8); }

/* The last entry whose key is not above the target; SIZE_MAX: none. */
static inline size_t floor_of(const struct kb_index *x, size_t count, int64_t (*key_at)(const struct kb_index *x, size_t i), int64_t target) {
    size_t lo = 0, hi = count; /* entries below lo are <= target */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (key_at(x, mid) <= target) lo = mid + 1;
        else hi = mid;
    }
    return lo ? lo - 1 : SIZE_MAX;
}

void kb_offsets_add(struct kb_index *x, int64_t base, int64_t offset, int64_t position) {
    KW_ASSERT(x->len + KB_OFFSET_ENTRY <= x->cap);
    KW_ASSERT(offset >= base && offset - base <= INT32_MAX && position <= INT32_MAX);
    size_t n = kb_offsets_count(x);
    KW_ASSERT(n == 0 || (offset_at(x, n - 1) < offset - base && position_at(x, n - 1) < position));
    kw_store32(x->p + x->len, (uint32_t)(offset - base));
    kw_store32(x->p + x->len + 4, (uint32_t)position);
    x->len += KB_OFFSET_ENTRY;
}

void kb_offsets_get(const struct kb_index *x, int64_t base, size_t i, int64_t *offset, int64_t *position) {
    KW_ASSERT(i < kb_offsets_count(x));
    *offset = base + offset_at(x, i);
    *position = position_at(x, i);
}

size_t kb_offsets_floor(const struct kb_index *x, int64_t base, int64_t target) {
    return floor_of(x, kb_offsets_count(x), offset_at, target - base);
}

size_t kb_offsets_floor_position(const struct kb_index *x, int64_t position) {
    return floor_of(x, kb_offsets_count(x), position_at, position);
}

void kb_offsets_cut(struct kb_index *x, int64_t base, int64_t to) {
    size_t i = to <= base ? SIZE_MAX : kb_offsets_floor(x, base, to - 1);
    x->len = i == SIZE_MAX ? 0 : (i + 1) * KB_OFFSET_ENTRY;
}

bool kb_offsets_sane(struct kb_index *x, int64_t base, int64_t size) {
    if (x->len % KB_OFFSET_ENTRY) return false;
    size_t n = kb_offsets_count(x);
    while (n && position_at(x, n - 1) == 0) n--; /* the first entry's position is above the index interval, never 0 */
    x->len = n * KB_OFFSET_ENTRY;
    for (size_t i = 0; i < n; i++) {
        if (offset_at(x, i) > INT32_MAX || position_at(x, i) >= size || base > INT64_MAX - INT32_MAX) return false;
        if (i && (offset_at(x, i) <= offset_at(x, i - 1) || position_at(x, i) <= position_at(x, i - 1))) return false;
    }
    return true;
}

void kb_times_add(struct kb_index *x, int64_t base, int64_t timestamp, int64_t offset) {
    size_t n = kb_times_count(x);
    if (timestamp <= (n ? time_at(x, n - 1) : -1)) return;
    KW_ASSERT(x->len + KB_TIME_ENTRY <= x->cap);
    KW_ASSERT(offset >= base && offset - base <= INT32_MAX && (n == 0 || offset - base >= time_offset_at(x, n - 1)));
    kw_store64(x->p + x->len, (uint64_t)timestamp);
    kw_store32(x->p + x->len + 8, (uint32_t)(offset - base));
    x->len += KB_TIME_ENTRY;
}

void kb_times_get(const struct kb_index *x, int64_t base, size_t i, int64_t *timestamp, int64_t *offset) {
    KW_ASSERT(i < kb_times_count(x));
    *timestamp = time_at(x, i);
    *offset = base + time_offset_at(x, i);
}

size_t kb_times_floor(const struct kb_index *x, int64_t timestamp) {
    return floor_of(x, kb_times_count(x), time_at, timestamp);
}

void kb_times_cut(struct kb_index *x, int64_t base, int64_t to) {
    size_t n = kb_times_count(x);
    while (n && base + time_offset_at(x, n - 1) >= to) n--;
    x->len = n * KB_TIME_ENTRY;
}

bool kb_times_sane(struct kb_index *x) {
    if (x->len % KB_TIME_ENTRY) return false;
    size_t n = kb_times_count(x);
    while (n && time_at(x, n - 1) == 0 && time_offset_at(x, n - 1) == 0 && n > 1) n--;
    if (n == 1 && x->len > KB_TIME_ENTRY && time_at(x, 0) == 0 && time_offset_at(x, 0) == 0) n = 0;
    x->len = n * KB_TIME_ENTRY;
    for (size_t i = 0; i < n; i++) {
        if (time_offset_at(x, i) > INT32_MAX || time_at(x, i) < 0) return false;
        if (i && (time_at(x, i) <= time_at(x, i - 1) || time_offset_at(x, i) < time_offset_at(x, i - 1))) return false;
    }
    return true;
}
