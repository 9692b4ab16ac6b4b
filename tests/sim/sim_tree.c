/* sim_tree.c - files and folders in memory, each with its durable self. Called by sim_disk.c; aborts when memory runs out (a test's own). */
#include "sim_tree.h"

#include <stdlib.h>

enum { ROOM_MIN = 4096 };

static void *need(void *p) {
    if (!p) abort();
    return p;
}

struct sim_node *sim_node_new(bool folder) {
    struct sim_node *n = need(calloc(1, sizeof(*n)));
    n->refs = 1;
    n->folder = folder;
    return n;
}

struct sim_node *sim_node_ref(struct sim_node *n) {
    n->refs++;
    return n;
}

static void entries_clear(struct sim_entries *e) {
    for (size_t i = 0; i < e->count; i++) {
        free(e->v[i].name);
        sim_node_unref(e->v[i].node);
    }
    free(e->v);
    memset(e, 0, sizeof(*e));
}

static void changes_clear(struct sim_node *n) {
    for (size_t i = 0; i < n->change_count; i++) {
        free(n->changes[i].name);
        if (n->changes[i].node) sim_node_unref(n->changes[i].node);
    }
    n->change_count = 0;
}

void sim_node_unref(struct sim_node *n) {
    if (--n->refs) return;
    entries_clear(&n->now);
    entries_clear(&n->synced);
    changes_clear(n);
    free(n->changes);
    free(n->data);
    free(n->durable);
    free(n);
}

void sim_node_resize(struct sim_node *n, size_t size) {
    if (size > n->cap) {
        n->cap = 2 * size + ROOM_MIN;
        n->data = need(realloc(n->data, n->cap));
    }
    if (size > n->size) {
        memset(n->data + n->size, 0, size - n->size);
        sim_node_changed(n, n->size, size);
    }
    n->size = size;
}

void sim_node_changed(struct sim_node *n, size_t from, size_t to) {
    if (from >= to) return;
    bool none = n->changed_from == n->changed_to;
    n->changed_from = none || from < n->changed_from ? from : n->changed_from;
    n->changed_to = none || to > n->changed_to ? to : n->changed_to;
}

static void durable_resize(struct sim_node *n, size_t size) {
    if (size > n->durable_cap) {
        n->durable_cap = 2 * size + ROOM_MIN;
        n->durable = need(realloc(n->durable, n->durable_cap));
    }
    if (size > n->durable_size) memset(n->durable + n->durable_size, 0, size - n->durable_size);
    n->durable_size = size;
}

void sim_node_writeback(struct sim_node *n, size_t from, size_t to) {
    if (to > n->durable_size) {
        sim_node_changed(n, n->durable_size, to);
        durable_resize(n, to);
    }
    memcpy(n->durable + from, n->data + from, to - from);
}

void sim_node_sync(struct sim_node *n) {
    if (n->size > n->durable_size) sim_node_changed(n, n->durable_size, n->size);
    durable_resize(n, n->size);
    size_t to = n->changed_to < n->size ? n->changed_to : n->size;
    if (n->changed_from < to) memcpy(n->durable + n->changed_from, n->data + n->changed_from, to - n->changed_from);
    n->changed_from = n->changed_to = 0;
}

/* ---- Names ---- */

static size_t place(const struct sim_entries *e, const char *name) {
    size_t lo = 0, hi = e->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(e->v[mid].name, name) < 0) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static struct sim_node *entries_get(const struct sim_entries *e, const char *name) {
    size_t i = place(e, name);
    return i < e->count && strcmp(e->v[i].name, name) == 0 ? e->v[i].node : NULL;
}

static void entries_set(struct sim_entries *e, const char *name, struct sim_node *node) {
    size_t i = place(e, name);
    bool there = i < e->count && strcmp(e->v[i].name, name) == 0;
    if (there) {
        struct sim_node *old = e->v[i].node;
        if (node) {
            e->v[i].node = sim_node_ref(node);
        } else {
            free(e->v[i].name);
            memmove(e->v + i, e->v + i + 1, (--e->count - i) * sizeof(*e->v));
        }
        sim_node_unref(old);
        return;
    }
    if (!node) return;
    if (e->count == e->cap) {
        e->cap = e->cap ? e->cap * 2 : 8;
        e->v = need(realloc(e->v, e->cap * sizeof(*e->v)));
    }
    memmove(e->v + i + 1, e->v + i, (e->count++ - i) * sizeof(*e->v));
    e->v[i] = (struct sim_entry){need(strdup(name)), sim_node_ref(node)};
}

struct sim_node *sim_folder_get(const struct sim_node *folder, const char *name) { return entries_get(&folder->now, name); }

void sim_folder_set(struct sim_node *f, const char *name, struct sim_node *node, uint64_t id) {
    if (node) sim_node_ref(node);
    entries_set(&f->now, name, node);
    if (f->change_count == f->change_cap) {
        f->change_cap = f->change_cap ? f->change_cap * 2 : 8;
        f->changes = need(realloc(f->changes, f->change_cap * sizeof(*f->changes)));
    }
    f->changes[f->change_count++] = (struct sim_change){id, need(strdup(name)), node};
}

void sim_folder_sync(struct sim_node *f) {
    for (size_t i = 0; i < f->change_count; i++) entries_set(&f->synced, f->changes[i].name, f->changes[i].node);
    changes_clear(f);
}

struct sim_node *sim_tree_parent(struct sim_node *root, const char *path, const char **name) {
    struct sim_node *at = root;
    for (;;) {
        while (*path == '/') path++;
        const char *slash = strchr(path, '/');
        if (!slash) {
            *name = path;
            return at;
        }
        char part[300];
        size_t n = (size_t)(slash - path);
        if (n >= sizeof(part)) return NULL;
        memcpy(part, path, n);
        part[n] = 0;
        at = sim_folder_get(at, part);
        if (!at || !at->folder) return NULL;
        path = slash + 1;
    }
}

struct sim_node *sim_tree_find(struct sim_node *root, const char *path) {
    const char *name;
    struct sim_node *p = sim_tree_parent(root, path, &name);
    if (!p) return NULL;
    return *name ? sim_folder_get(p, name) : p;
}

/* ---- Crashes ---- */

static void lose_content(struct sim_node *n, struct kw_rng *rng, struct sim_losses *l) {
    size_t size = n->size, longest = n->size > n->durable_size ? n->size : n->durable_size;
    if (n->size != n->durable_size && kw_rng_below(rng, 2)) {
        size = n->durable_size;
        l->sizes++;
    }
    uint8_t *v = need(calloc(1, longest + 1));
    for (size_t at = 0; at < longest; at += SIM_SECTOR) {
        size_t k = longest - at < SIM_SECTOR ? longest - at : SIM_SECTOR;
        uint8_t a[SIM_SECTOR] = {0}, b[SIM_SECTOR] = {0};
        if (at < n->size) memcpy(a, n->data + at, n->size - at < k ? n->size - at : k);
        if (at < n->durable_size) memcpy(b, n->durable + at, n->durable_size - at < k ? n->durable_size - at : k);
        bool lost = memcmp(a, b, k) != 0 && kw_rng_below(rng, 2);
        if (lost) l->sectors++;
        memcpy(v + at, lost ? b : a, k);
    }
    sim_node_resize(n, size);
    if (size) memcpy(n->data, v, size);
    sim_node_changed(n, 0, size);
    free(v);
    sim_node_sync(n);
}

void sim_tree_power_loss(struct sim_node *n, struct kw_rng *rng, struct sim_losses *l) {
    if (!n->folder) {
        lose_content(n, rng, l);
        return;
    }
    uint64_t id = 0;
    bool keep = false;
    for (size_t i = 0; i < n->change_count; i++) {
        if (i == 0 || n->changes[i].id != id) {
            id = n->changes[i].id;
            keep = kw_rng_below(rng, 2);
            if (!keep) l->names++;
        }
        if (keep) entries_set(&n->synced, n->changes[i].name, n->changes[i].node);
    }
    changes_clear(n);
    struct sim_entries now = {0};
    for (size_t i = 0; i < n->synced.count; i++) entries_set(&now, n->synced.v[i].name, n->synced.v[i].node);
    entries_clear(&n->now);
    n->now = now;
    for (size_t i = 0; i < n->now.count; i++) sim_tree_power_loss(n->now.v[i].node, rng, l);
}

void sim_tree_sync_all(struct sim_node *n) {
    if (!n->folder) {
        sim_node_sync(n);
        return;
    }
    sim_folder_sync(n);
    for (size_t i = 0; i < n->now.count; i++) sim_tree_sync_all(n->now.v[i].node);
}

void sim_tree_unstick(struct sim_node *n) {
    n->stuck = false;
    for (size_t i = 0; n->folder && i < n->now.count; i++) sim_tree_unstick(n->now.v[i].node);
}

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

struct sim_node *sim_tree_copy(const struct sim_node *root) {
    struct sim_node *n = sim_node_new(root->folder);
    n->mtime_ms = root->mtime_ms;
    if (!root->folder) {
        sim_node_resize(n, root->size);
        if (root->size) memcpy(n->data, root->data, root->size); /* all of it is new: marked as changed */
        sim_node_sync(n);
        return n;
    }
    for (size_t i = 0; i < root->now.count; i++) {
        struct sim_node *child = sim_tree_copy(root->now.v[i].node);
        sim_folder_set(n, root->now.v[i].name, child, i);
        sim_node_unref(child);
    }
    sim_folder_sync(n);
    return n;
}

uint64_t sim_tree_hash(const struct sim_node *n, uint64_t h) {
    if (!n->folder) return mix(mix(h, &n->size, sizeof(n->size)), n->data, n->size);
    for (size_t i = 0; i < n->now.count; i++) {
        h = mix(h, n->now.v[i].name, strlen(n->now.v[i].name) + 1);
        h = sim_tree_hash(n->now.v[i].node, h);
    }
    return h;
}
