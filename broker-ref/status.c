/* status.c - what a node is and what it has counted since its start, as JSON: elections that lost records, brokers taken for dead, logs cut back.
 *
 * Called by the admin port (GET /status), DescribeCluster and DescribeQuorum (where counts are asked for) through node.h.
 * Calls store, controller, partitions, followers. Numbers only grow, from a node's start on;
 * those of the controller are counted by the node that was it at the time, so a cluster's are the sums over its nodes.
 */
#include <stdio.h>

#include "api/produce_guid.h"
#include "node_priv.h"
#include "replica/follower.h"
#include "replica/guids.h"
#include "replica/partitions_priv.h"

enum { STATUS_SIZE_MAX = 2000 };

static const char *state_text(enum kb_node_state state) {
    static const char *const texts[] = {
        [KB_NODE_NEW] = "new",           [KB_NODE_LOADING] = "loading", [KB_NODE_READY] = "ready",
        [KB_NODE_STOPPING] = "stopping", [KB_NODE_STOPPED] = "stopped", [KB_NODE_FAILED] = "failed",
    };
    return texts[state];
}

static const char *roles_text(int roles) {
    return roles == (KB_ROLE_BROKER | KB_ROLE_CONTROLLER) ? "\"broker\",\"controller\"" : roles == KB_ROLE_BROKER ? "\"broker\"" : "\"controller\"";
}

/* Another tool may have formatted the folder with a text that JSON would not take as it is. */
static void json_text(char *out, size_t size, const char *text) {
    size_t n = 0;
    for (const char *p = text ? text : ""; *p && n + 2 < size; p++) {
        if (*p == '"' || *p == '\\') out[n++] = '\\';
        out[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    out[n] = 0;
}

/* GUIDs that went with their records though they were to be known for longer: size retention, DeleteRecords, unclean elections. */
static int64_t forgotten(const struct kb_node *n) {
    struct kb_guids_stats v = {0};
    kb_guids_stats(n, &v);
    return v.forgotten;
}

size_t kb_node_counts(const struct kb_node *n, struct kb_node_count out[KB_NODE_COUNTS]) {
    static const struct kb_controller_counts none;
    static const struct kb_follower_stats nothing;
    const struct kb_store *store = n->parts.store;
    const struct kb_controller_counts *c = n->parts.controller ? kb_controller_counts(n->parts.controller) : &none;
    const struct kb_follower_stats *f = n->followers ? kb_followers_stats(n) : &nothing;
    const struct kb_node_count counts[KB_NODE_COUNTS] = {
        {"brokers_fenced", (int64_t)c->brokers_fenced},
        {"unclean_elections", (int64_t)c->unclean_elections},
        {"last_known_leaders", (int64_t)(c->last_known_leaders + (store ? kb_store_last_known_leaders(store) : 0))},
        {"records_lost", (int64_t)(n->partitions ? n->partitions->lost : 0)},
        {"truncations", (int64_t)f->truncations},
        {"resets", (int64_t)f->resets},
        {"unclean_truncations", (int64_t)f->unclean_truncations},
        {"unclean_records", (int64_t)f->unclean_records},
        {"corrupt_batches", (int64_t)f->corrupt},
        {"compactions", n->partitions ? n->partitions->cleaner.passes : 0},
        {"uncleanable_logs", n->partitions ? n->partitions->cleaner.uncleanable : 0},
        {"guid_duplicates", kb_produce_guid_counts(n).duplicates},
        {"guid_mismatches", kb_produce_guid_counts(n).mismatches},
        {"guid_forgotten", forgotten(n)},
    };
    memcpy(out, counts, sizeof(counts));
    return KB_NODE_COUNTS;
}

char *kb_node_status(const struct kb_node *n) {
    const struct kb_store *store = n->parts.store;
    bool loaded = store && kb_store_is_loaded(store);
    int32_t epoch = -1, leader = loaded ? kb_store_leader(store, &epoch) : -1;
    struct kb_node_count counts[KB_NODE_COUNTS];
    char cluster_id[200], *out = kw_malloc(STATUS_SIZE_MAX);
    if (!out) return NULL;
    json_text(cluster_id, sizeof(cluster_id), loaded ? kb_store_cluster_id(store) : "");
    int at = snprintf(out, STATUS_SIZE_MAX,
                      "{\"node\":%d,\"state\":\"%s\",\"roles\":[%s],\"cluster_id\":\"%s\",\"controller\":%d,\"epoch\":%d,\"metadata_offset\":%lld,"
                      "\"broker_epoch\":%lld,\"counts\":{",
                      (int)n->id, state_text(n->state), roles_text(n->roles), cluster_id, (int)leader, (int)epoch, (long long)n->image.offset,
                      (long long)kb_node_broker_epoch(n));
    for (size_t i = 0, count = kb_node_counts(n, counts); i < count; i++)
        at += snprintf(out + at, STATUS_SIZE_MAX - (size_t)at, "%s\"%s\":%lld", i ? "," : "", counts[i].name, (long long)counts[i].value);
    snprintf(out + at, STATUS_SIZE_MAX - (size_t)at, "}}");
    return out;
}
