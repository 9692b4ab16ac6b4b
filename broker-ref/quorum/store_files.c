/* store_files.c - meta.properties and quorum-state as Apache Kafka writes them: who this folder belongs to, and the quorum's epoch and
 * vote.
 *
 * Called by store_load.c (in its job and after it), raft.c and raft_join.c. KIP-631, KIP-858 (directory.id), KIP-595 (quorum-state).
 */
#include <stdio.h>
#include <stdlib.h>

#include "log/text.h"
#include "store_priv.h"
#include "uuid.h"

kw_err kb_store_properties_write(struct kw_out *out, int32_t node_id, const char *cluster_id, struct kw_uuid directory_id) {
    char id[23];
    kb_uuid_text(directory_id, id);
    kb_text_add(out, "#\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=1\n", cluster_id, id, (int)node_id);
    return out->err;
}

static bool is_key(const char *line, size_t n, const char *key, const char **value, size_t *value_n) {
    size_t k = strlen(key);
    if (n <= k || memcmp(line, key, k) != 0 || line[k] != '=') return false;
    *value = line + k + 1;
    *value_n = n - k - 1;
    return true;
}

kw_err kb_store_properties_read(struct kb_store_load *l, const uint8_t *p, size_t n) {
    struct kb_text t = {p, p + n};
    const char *line, *v;
    size_t len, m;
    int64_t node = -1, version = -1;
    bool cluster = false, directory = false;
    while (kb_text_line(&t, &line, &len)) {
        if (is_key(line, len, "version", &v, &m) && !kb_text_int(v, m, 0, 1000, &version)) version = -1;
        if (is_key(line, len, "node.id", &v, &m) && !kb_text_int(v, m, 0, INT32_MAX, &node)) node = -1;
        if (is_key(line, len, "directory.id", &v, &m)) directory = kb_uuid_parse(v, m, &l->directory_id);
        if (is_key(line, len, "cluster.id", &v, &m) && m > 0 && m <= KB_CLUSTER_ID_MAX) {
            memcpy(l->cluster_id, v, m);
            l->cluster_id[m] = 0;
            cluster = true;
        }
    }
    if (version != 1 || !cluster || !directory || node < 0) {
        snprintf(l->why, sizeof(l->why),
                 "%s/meta.properties: version 1 with cluster.id, directory.id and node.id is needed; restore the file, or use another data "
                 "folder",
                 l->dir);
        return KW_EINVAL;
    }
    if (node != l->node_id) {
        snprintf(l->why, sizeof(l->why), "%s belongs to node %lld, but node.id is %d: set node.id=%lld, or use another data folder", l->dir,
                 (long long)node, (int)l->node_id, (long long)node);
        return KW_EINVAL;
    }
    return KW_OK;
}

kw_err kb_store_vote_write(struct kw_out *out, int32_t node_id, int32_t epoch) {
    kb_text_add(out,
                "{\"clusterId\":\"\",\"leaderId\":%d,\"leaderEpoch\":%d,\"votedId\":-1,\"appliedOffset\":0,\"currentVoters\":[{\"voterId\":"
                "%d}],\"data_version\":0}",
                (int)node_id, (int)epoch, (int)node_id);
    return out->err;
}

/* The number behind the next `key` at or after *at, which moves behind it. */
static bool next_number(const uint8_t **at, const uint8_t *end, const char *key, int32_t *v) {
    const uint8_t *p = memmem(*at, (size_t)(end - *at), key, strlen(key));
    if (!p) return false;
    p += strlen(key);
    while (p < end && (*p == ' ' || *p == ':')) p++;
    bool minus = p < end && *p == '-';
    const uint8_t *digits = p += minus;
    int64_t n;
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (!kb_text_int((const char *)digits, (size_t)(p - digits), 0, INT32_MAX, &n)) return false;
    *v = (int32_t)(minus ? -n : n);
    *at = p;
    return true;
}

/* The one number that a quorum of one needs of the JSON. */
kw_err kb_store_vote_read(const uint8_t *p, size_t n, int32_t *epoch) {
    const uint8_t *at = p;
    if (n == 0 || p[0] != '{' || !memchr(p, '}', n) || !next_number(&at, p + n, "\"leaderEpoch\"", epoch)) return KW_EDECODE;
    return *epoch < 0 || *epoch > KB_EPOCH_MAX ? KW_EDECODE : KW_OK;
}

/* ---- Of several voters ---- */

kw_err kb_store_state_write(struct kw_out *out, const struct kb_election_state *st, const int32_t *voters, size_t count) {
    kb_text_add(out, "{\"clusterId\":\"\",\"leaderId\":%d,\"leaderEpoch\":%d,\"votedId\":%d,\"appliedOffset\":0,\"currentVoters\":[", (int)st->leader_id,
                (int)st->epoch, (int)st->voted_id);
    for (size_t i = 0; i < count; i++) kb_text_add(out, i ? ",{\"voterId\":%d}" : "{\"voterId\":%d}", (int)voters[i]);
    kb_text_add(out, "],\"data_version\":0}");
    return out->err;
}

kw_err kb_store_state_read(const uint8_t *p, size_t n, struct kb_election_state *st, int32_t voters[KB_VOTERS_MAX], size_t *count) {
    const uint8_t *end = p + n, *at = p;
    int32_t version;
    if (n == 0 || p[0] != '{' || !memchr(p, '}', n)) return KW_EDECODE;
    kb_election_none(st);
    if (!next_number(&at, end, "\"leaderEpoch\"", &st->epoch)) return KW_EDECODE;
    if (at = p, !next_number(&at, end, "\"leaderId\"", &st->leader_id)) return KW_EDECODE;
    if (at = p, !next_number(&at, end, "\"votedId\"", &st->voted_id)) return KW_EDECODE;
    if (at = p, !next_number(&at, end, "\"data_version\"", &version) || version != 0) return KW_EDECODE;
    if (st->epoch < 0 || st->epoch > KB_EPOCH_MAX || st->leader_id < -1 || st->voted_id < -1) return KW_EDECODE;
    at = p;
    *count = 0;
    for (int32_t id; next_number(&at, end, "\"voterId\"", &id);) {
        if (*count == KB_VOTERS_MAX || id < 0) return KW_EDECODE;
        voters[(*count)++] = id;
    }
    return KW_OK;
}

/* ---- On their way to the disk ---- */

void kb_store_write_file(const struct kb_store *s, struct kb_whole_file *f, const char *path, const struct kw_out *bytes,
                         void (*done)(struct kb_disk_req *q, struct kb_now now), void *ctx) {
    f->iov = (struct kb_iov){bytes->p, bytes->len};
    f->req = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                  .lane = KB_LANE_ATOMIC,
                                  .flags = s->o.env->ephemeral ? 0 : KB_DISK_SYNC_FLAG,
                                  .path = path,
                                  .iov = &f->iov,
                                  .iov_count = 1,
                                  .done = done,
                                  .ctx = ctx};
    kb_disk_submit(s->o.env->disk, &f->req);
}
