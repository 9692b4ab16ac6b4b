/* status.c - what a node is and what it has counted since its start, as JSON: elections that lost records, brokers taken for dead, logs cut back.
 *
 * Called by the admin port (GET /status) through node.h. Calls store, controller, partitions, followers. Numbers only grow, from a node's start on;
 * those of the controller are counted by the node that was it at the time, so a cluster's are the sums over its nodes.
 */
#include <stdio.h>

#include "node_priv.h"
#include "replica/follower.h"
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

char *kb_node_status(const struct kb_node *n) {
    static const struct kb_controller_counts none;
    static const struct kb_follower_stats nothing;
    const struct kb_store *store = n->parts.store;
    bool loaded = store && kb_store_is_loaded(store);
    const struct kb_controller_counts *c = n->parts.controller ? kb_controller_counts(n->parts.controller) : &none;
    const struct kb_follower_stats *f = n->followers ? kb_followers_stats(n) : &nothing;
    int32_t epoch = -1, leader = loaded ? kb_store_leader(store, &epoch) : -1;
    char cluster_id[200], *out = kw_malloc(STATUS_SIZE_MAX);
    if (!out) return NULL;
    json_text(cluster_id, sizeof(cluster_id), loaded ? kb_store_cluster_id(store) : "");
    snprintf(out, STATUS_SIZE_MAX,
             "{\"node\":%d,\"state\":\"%s\",\"roles\":[%s],\"cluster_id\":\"%s\",\"controller\":%d,\"epoch\":%d,\"metadata_offset\":%lld,"
             "\"broker_epoch\":%lld,\"counts\":{\"brokers_fenced\":%lld,\"unclean_elections\":%lld,\"last_known_leaders\":%lld,"
             "\"records_lost\":%lld,\"truncations\":%lld,\"resets\":%lld,\"unclean_truncations\":%lld,\"unclean_records\":%lld,"
             "\"corrupt_batches\":%lld}}",
             (int)n->id, state_text(n->state), roles_text(n->roles), cluster_id, (int)leader, (int)epoch, (long long)n->image.offset,
             (long long)kb_node_broker_epoch(n), (long long)c->brokers_fenced, (long long)c->unclean_elections,
             (long long)(c->last_known_leaders + (store ? kb_store_last_known_leaders(store) : 0)),
             (long long)(n->partitions ? n->partitions->lost : 0), (long long)f->truncations, (long long)f->resets,
             (long long)f->unclean_truncations, (long long)f->unclean_records, (long long)f->corrupt);
    return out;
}
