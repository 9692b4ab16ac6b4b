/* sim_tree.h - the file tree behind sim_disk.c: folders and files with what is written and what is durable. Private to the simulated disk. */
#ifndef SIM_TREE_H
#define SIM_TREE_H

#include "sim_disk.h"

#define SIM_SECTOR 512

struct sim_node;
struct sim_entry {
    char *name;
    struct sim_node *node; /* counted */
};
struct sim_entries {
    struct sim_entry *v; /* sorted by name */
    size_t count, cap;
};
struct sim_change { /* of a folder, not yet durable */
    uint64_t id;        /* a rename is two with the same id */
    char *name;
    struct sim_node *node; /* NULL: the name goes */
};
struct sim_node {
    uint32_t refs;
    bool folder, stuck; /* stuck: a sync failed, and no later one does anything */
    int64_t mtime_ms;
    char opened_as[96]; /* files: the path of the last open */
    bool bad;           /* files: the byte at bad_at cannot be read, until it is written anew */
    size_t bad_at;
    uint8_t *data, *durable; /* files */
    size_t size, cap, durable_size, durable_cap;
    size_t changed_from, changed_to; /* the bytes below both sizes that may differ lie in here: a sync copies no others */
    struct sim_entries now, synced; /* folders */
    struct sim_change *changes;
    size_t change_count, change_cap;
};

struct sim_node *sim_node_new(bool folder);
struct sim_node *sim_node_ref(struct sim_node *n);
void sim_node_unref(struct sim_node *n);
void sim_node_resize(struct sim_node *n, size_t size);
void sim_node_changed(struct sim_node *n, size_t from, size_t to); /* data was written there */
void sim_node_writeback(struct sim_node *n, size_t from, size_t to); /* these bytes become durable, others not */
void sim_node_sync(struct sim_node *n);
struct sim_node *sim_tree_find(struct sim_node *root, const char *path);
/* The folder of a path and its last name (points into path); NULL when the folder is missing. */
struct sim_node *sim_tree_parent(struct sim_node *root, const char *path, const char **name);
struct sim_node *sim_folder_get(const struct sim_node *folder, const char *name);
void sim_folder_set(struct sim_node *folder, const char *name, struct sim_node *node, uint64_t id); /* node NULL: removes */
void sim_folder_sync(struct sim_node *folder);
/* What a power loss leaves; counts what was lost. */
struct sim_losses {
    uint64_t sectors, names, sizes;
};
void sim_tree_power_loss(struct sim_node *root, struct kw_rng *rng, struct sim_losses *l);
void sim_tree_sync_all(struct sim_node *root);
void sim_tree_unstick(struct sim_node *n); /* a new process: syncs have their effect again */
struct sim_node *sim_tree_copy(const struct sim_node *root); /* as it is written, all of it synced */
uint64_t sim_tree_hash(const struct sim_node *root, uint64_t h);

#endif
