/* budget.c - see budget.h. */
#include "budget.h"

void kc_budget_init(struct kc_budget *b, int64_t max) {
    *b = (struct kc_budget){.max = max, .floor = {max / 4, max / 4}};
    kw_list_init(&b->purses);
}

/* ---- Two sides ---- */

/* What a role may use in all: over its floor only what the other has neither used nor been promised; the producers also leave room for one consumer
 * that goes without. */
static int64_t top(const struct kc_budget *b, enum kc_role role) {
    int64_t other = atomic_load_explicit(&b->used[!role], memory_order_relaxed);
    if (role == KC_ROLE_PRODUCE) other += atomic_load_explicit(&b->purse_floor, memory_order_relaxed);
    return KW_MAX(b->floor[role], b->max - KW_MAX(other, b->floor[!role]));
}

bool kc_budget_take(struct kc_budget *b, enum kc_role role, size_t n) {
    int64_t size = n > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)n;
    int64_t mine = atomic_fetch_add_explicit(&b->used[role], size, memory_order_relaxed) + size;
    if (mine <= top(b, role)) return true;
    atomic_fetch_sub_explicit(&b->used[role], size, memory_order_relaxed);
    return false;
}

void kc_budget_give(struct kc_budget *b, enum kc_role role, size_t n) {
    int64_t size = n > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)n;
    int64_t before = atomic_fetch_sub_explicit(&b->used[role], size, memory_order_relaxed);
    KW_ASSERT(before >= size);
}

/* ---- One consumer's ---- */

struct kc_purse *kc_purse_new(struct kc_budget *b) {
    struct kc_purse *p = kw_calloc(1, sizeof *p);
    if (!p) return NULL;
    kw_list_init(&p->link);
    atomic_init(&p->refs, 1);
    p->budget = b;
    return p;
}

struct kc_purse *kc_purse_ref(struct kc_purse *p) {
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void kc_purse_unref(struct kc_purse *p) {
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
    KW_ASSERT(kw_list_empty(&p->link));
    kw_free(p);
}

static void share_out(struct kc_budget *b) {
    int64_t n = (int64_t)b->purse_count;
    atomic_store_explicit(&b->purse_floor, n > 1 ? b->floor[KC_ROLE_FETCH] / n : 0, memory_order_relaxed);
}

void kc_purse_open(struct kc_purse *p) {
    struct kc_budget *b = p->budget;
    kw_list_push(&b->purses, &p->link);
    b->purse_count++;
    share_out(b);
}

void kc_purse_close(struct kc_purse *p) {
    struct kc_budget *b = p->budget;
    if (kw_list_empty(&p->link)) return;
    kw_list_remove(&p->link);
    b->purse_count--;
    share_out(b);
}

static int64_t used(const struct kc_purse *p) {
    return atomic_load_explicit(&p->used, memory_order_relaxed);
}

int64_t kc_purse_floor(const struct kc_purse *p) {
    return atomic_load_explicit(&p->budget->purse_floor, memory_order_relaxed);
}

int64_t kc_purse_room(const struct kc_purse *p) {
    struct kc_budget *b = p->budget;
    int64_t each = kc_purse_floor(p), promised = 0;
    for (const struct kw_list *it = b->purses.next; it != &b->purses; it = it->next) {
        const struct kc_purse *o = KW_CONTAINER_OF(it, struct kc_purse, link);
        int64_t owed = o != p ? each - used(o) : 0; /* read once: events are freed meanwhile */
        promised += KW_MAX(owed, 0);
    }
    int64_t left = top(b, KC_ROLE_FETCH) - atomic_load_explicit(&b->used[KC_ROLE_FETCH], memory_order_relaxed);
    int64_t own = each - used(p);
    return KW_MAX(left - promised, own);
}

/* Up to its floor a purse is never refused, even where others hold more than they may: an answer is larger than what was reserved for it when
 * its first batch is. */
bool kc_purse_take(struct kc_purse *p, int64_t n) {
    if (n > kc_purse_room(p)) return false;
    if (used(p) + n <= kc_purse_floor(p))
        kc_purse_add(p, n);
    else if (kc_budget_take(p->budget, KC_ROLE_FETCH, (size_t)n))
        atomic_fetch_add_explicit(&p->used, n, memory_order_relaxed);
    else
        return false; /* the producers were quicker */
    return true;
}

void kc_purse_add(struct kc_purse *p, int64_t n) {
    atomic_fetch_add_explicit(&p->budget->used[KC_ROLE_FETCH], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->used, n, memory_order_relaxed);
}

void kc_purse_give(struct kc_purse *p, int64_t n) {
    int64_t before = atomic_fetch_sub_explicit(&p->used, n, memory_order_relaxed);
    KW_ASSERT(before >= n);
    kc_budget_give(p->budget, KC_ROLE_FETCH, (size_t)n);
}
