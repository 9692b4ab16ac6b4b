/* table.h - the newest ids of one partition, in memory: an array in the order of the offsets, and a hash over it, 32 bytes an id at the most, all in all.
 * As long as each id is greater than the one before it (UUIDv7 of one producer) the array is in their order, too, and there is no hash: what is
 * greater than the last one is not there, and the rest is found by halving.
 *
 * Called by index, find, merge (which writes one out). Pure.
 */
#ifndef KB_GUID_TABLE_H
#define KB_GUID_TABLE_H

#include "hash.h"
#include "index.h"

#define KB_GUID_TABLE_MAX ((size_t)256 << 10) /* entries */

struct kb_guid_slot_entry { /* 24 bytes, as in a file */
    uint8_t id[KB_GUID_SIZE];
    uint32_t delta, payload; /* delta: from the table's base */
};
struct kb_guid_table {
    int64_t base, end; /* all ids in [base, end) are in it */
    int64_t cut_to;    /* nothing from there on counts: the log was cut while the table was being written. INT64_MAX */
    int64_t oldest_us, newest_us, oldest_wall_ms, newest_wall_ms; /* of the appends; of one that is empty they say nothing */
    struct kb_guid_slot_entry *v;
    kb_id128 highest;  /* no id is greater */
    uint32_t *slots;   /* NULL: the ids ascend. 0: free; else the index of an entry, plus one, and above it some bits of its hash */
    size_t count, cap, slot_cap;
    size_t forgotten;  /* entries, from the first on, that are below the log's start, and were counted */
    bool frozen;       /* nothing is added any more */
    bool writing;      /* a job reads it: entries stay where they are */
    bool repeats;      /* an id came twice: the slots have its lowest entry alone, of those from slots_from on */
    int64_t slots_from;
    uint64_t key[2];
};

/* expected: entries; memory for so many is taken at once, since growing takes time. */
kw_err kb_guid_table_init(struct kb_guid_table *t, const uint64_t key[2], int64_t base, size_t expected) KW_CHECK;
void kb_guid_table_deinit(struct kb_guid_table *t);
/* Offsets at or above those before, less than 2^32 above the base; no more than KB_GUID_TABLE_MAX entries in all. KW_ENOMEM: some of the first may have
 * been added; `end` lies behind all that were. */
kw_err kb_guid_table_add(struct kb_guid_table *t, const struct kb_guid_entry *v, size_t n) KW_CHECK;
/* The lowest copy in [from, to). */
bool kb_guid_table_find(struct kb_guid_table *t, const uint8_t id[KB_GUID_SIZE], uint64_t hash, int64_t from, int64_t to, struct kb_guid_entry *out);
void kb_guid_table_pop(struct kb_guid_table *t, int64_t to); /* entries from `to` on go; the end goes back to it */
struct kb_guid_place { /* of an entry, in the order of a run: by hash, then id, then offset */
    uint64_t hash;
    uint32_t index; /* in v */
};
/* The first `count` entries. v: so many, out; spare: so many, too. Reads nothing that changes while a table is being written. */
void kb_guid_table_sort(const struct kb_guid_table *t, size_t count, struct kb_guid_place *v, struct kb_guid_place *spare);
size_t kb_guid_table_below(const struct kb_guid_table *t, int64_t offset); /* so many entries are */
static inline int64_t kb_guid_table_memory(const struct kb_guid_table *t) {
    return (int64_t)(t->cap * sizeof(*t->v) + t->slot_cap * sizeof(*t->slots));
}
static inline void kb_guid_table_prefetch(const struct kb_guid_table *t, uint64_t hash) {
    if (t->slots) __builtin_prefetch(&t->slots[hash & (t->slot_cap - 1)]);
}

#endif
