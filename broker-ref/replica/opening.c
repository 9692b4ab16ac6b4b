/* opening.c - from a partition of the image to an open log: whose folder is it, then the log's own loading; and folders that are nobody's.
 *
 * Called by partitions.c. Calls the disk queue and log/. Files: `topic-N/partition.metadata` (KIP-516). A folder without one (segments that
 * Apache Kafka wrote) is taken over; one of another topic id (the topic was deleted and made again while this broker was down) is set
 * aside.
 */
#include <stdio.h>

#include "log/text.h"
#include "partitions_priv.h"
#include "uuid.h"

enum { METADATA_SIZE_MAX = 4096 };

struct kb_opening {
    struct kb_partition *p;
    struct kb_disk_req req;
    char *dir, *metadata_path, *aside;
    bool found_metadata, set_aside;
};

static bool read_metadata(const uint8_t *data, size_t n, struct kw_uuid *id) {
    struct kb_text t = {data, data + n};
    const char *line;
    size_t len;
    bool version_ok = false, found = false;
    while (kb_text_line(&t, &line, &len)) {
        if (len == 10 && memcmp(line, "version: 0", 10) == 0) version_ok = true;
        if (len > 10 && memcmp(line, "topic_id: ", 10) == 0) found = kb_uuid_parse(line + 10, len - 10, id);
    }
    return version_ok && found;
}

/* ---- The chain: read partition.metadata, set a foreign folder aside, open the log, write partition.metadata ---- */

static char *join(const char *fmt, const char *a, const char *b, int32_t c, const char *d) {
    size_t size = strlen(a) + strlen(b) + strlen(d) + 64;
    char *s = kw_malloc(size);
    if (s) snprintf(s, size, fmt, a, b, c, d);
    return s;
}

void kb_opening_free(struct kb_opening *o) {
    if (!o) return;
    kw_free(o->dir);
    kw_free(o->metadata_path);
    kw_free(o->aside);
    kw_free(o);
}

static void end(struct kb_opening *o, struct kb_now now) {
    struct kb_node *n = o->p->node;
    o->p->opening = NULL;
    if (o->p->state == KB_PART_DELETED)
        kb_partition_try_free(o->p, now);
    else
        kb_purgatory_moved(o->p, now);
    kb_opening_free(o);
    KW_ASSERT(n->partitions->opening > 0);
    if (--n->partitions->opening == 0) kb_node_opened(n, now);
}

static void give_up(struct kb_opening *o, const char *why, struct kb_now now) {
    if (o->p->state == KB_PART_LOADING) kb_partition_offline(o->p, why);
    end(o, now);
}

static void finish(struct kb_opening *o, struct kb_log *log, struct kb_now now) {
    struct kb_partition *p = o->p;
    int64_t hw = o->set_aside ? -1 : kb_checkpoint_get(&p->node->partitions->found[KB_POINT_HW], p->topic, p->index);
    p->opening = NULL; /* the marks may be looked at */
    if (p->state == KB_PART_LOADING && log->poisoned) kb_partition_offline(p, log->failure);
    if (p->state == KB_PART_LOADING) kb_partition_online(p, log, hw, now);
    end(o, now);
}

struct metadata_write {
    struct kb_disk_req req;
    struct kb_iov iov;
    struct kb_node *node;
    char text[80];
    char path[];
};

static void metadata_written(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    struct metadata_write *w = r->ctx;
    if (r->err != KB_DISK_OK && r->err != KB_DISK_ENOENT) /* the topic may have been deleted meanwhile */
        KB_SAY(w->node, KB_WARN, "%s cannot be written (error %d): the folder is taken for its topic by name at the next start", w->path,
               r->os_errno);
    kw_free(w);
}

/* Not synced: a folder without the file is taken over, so its loss costs nothing. */
static void write_metadata(struct kb_opening *o) {
    struct kb_node *n = o->p->node;
    struct metadata_write *w = kw_calloc(1, sizeof(*w) + strlen(o->metadata_path) + 1);
    if (!w) {
        KB_SAY(n, KB_WARN, "%s is not written: out of memory", o->metadata_path);
        return;
    }
    char id[23];
    kb_uuid_text(o->p->topic_id, id);
    w->node = n;
    memcpy(w->path, o->metadata_path, strlen(o->metadata_path) + 1);
    int len = snprintf(w->text, sizeof(w->text), "version: 0\ntopic_id: %s", id);
    w->iov = (struct kb_iov){(const uint8_t *)w->text, (size_t)len};
    w->req = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                  .lane = KB_LANE_ATOMIC,
                                  .path = w->path,
                                  .iov = &w->iov,
                                  .iov_count = 1,
                                  .done = metadata_written,
                                  .ctx = w};
    kb_disk_submit(&n->parts.disk, &w->req);
}

/* With flush.on.ack nothing is served that a power loss could take back: what recovery found is synced first. */
void kb_opening_moved(struct kb_partition *p, struct kb_now now) {
    struct kb_opening *o = p->opening;
    if (!o || !p->log) return;
    if (p->log->poisoned)
        finish(o, p->log, now);
    else if (!p->log_config.flush_on_ack || p->log->synced >= p->log->leo)
        finish(o, p->log, now);
}

static void log_opened(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_opening *o = ctx;
    struct kb_partition *p = o->p;
    (void)err; /* the log has said why */
    if (!log) {
        give_up(o, "its log cannot be opened", now);
        return;
    }
    p->log = log;
    if (!o->found_metadata && p->state != KB_PART_DELETED) write_metadata(o);
    if (p->log_config.flush_on_ack && log->synced < log->leo && kb_log_sync(log) == KW_OK && log->synced < log->leo) return;
    finish(o, log, now);
}

static void open_log(struct kb_opening *o, struct kb_now now) {
    struct kb_partition *p = o->p;
    struct kb_partitions *ps = p->node->partitions;
    struct kb_log_open open = {.env = &p->node->parts.log_env,
                               .config = &p->log_config,
                               .owner = kb_partition_owner(p),
                               .dir = o->dir,
                               .create = true,
                               .clean = ps->found_clean && !o->set_aside,
                               .start_checkpoint = o->set_aside ? -1 : kb_checkpoint_get(&ps->found[KB_POINT_START], p->topic, p->index),
                               .recovery_point = o->set_aside ? -1 : kb_checkpoint_get(&ps->found[KB_POINT_RECOVERY], p->topic, p->index),
                               .done = log_opened,
                               .ctx = o};
    if (kb_log_open(&open) != KW_OK) give_up(o, "no memory to open its log", now);
}

static void aside_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_opening *o = r->ctx;
    if (r->err != KB_DISK_OK) {
        KB_SAY(o->p->node, KB_ERROR, "%s belongs to another topic of that name and cannot be renamed to %s (error %d)", o->dir, o->aside,
               r->os_errno);
        give_up(o, "its folder holds another topic's data", now);
        return;
    }
    KB_SAY(o->p->node, KB_WARN, "%s belonged to another topic of that name: set aside as %s", o->dir, o->aside);
    o->set_aside = true;
    open_log(o, now);
}

static void set_aside(struct kb_opening *o, struct kw_uuid old, struct kb_now now) {
    struct kb_partition *p = o->p;
    char hex[48];
    for (size_t i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", old.b[i]);
    memcpy(hex + 32, "-stray", 7);
    o->aside = join("%s/%s-%d.%s", p->node->log_dir, p->topic, p->index, hex);
    if (!o->aside) {
        give_up(o, "out of memory", now);
        return;
    }
    o->req = (struct kb_disk_req){.op = KB_DISK_RENAME,
                                  .lane = KB_LANE_ATOMIC,
                                  .flags = KB_DISK_SYNC_FLAG,
                                  .path = o->dir,
                                  .path2 = o->aside,
                                  .done = aside_done,
                                  .ctx = o};
    kb_disk_submit(&p->node->parts.disk, &o->req);
}

/* Nothing, or only zeros: written, and lost with the power. */
static bool is_blank(const uint8_t *p, int64_t size) {
    for (int64_t i = 0; i < size; i++)
        if (p[i]) return false;
    return true;
}

static void metadata_read(struct kb_disk_req *r, struct kb_now now) {
    struct kb_opening *o = r->ctx;
    struct kw_uuid id;
    uint8_t *data = r->data;
    int64_t size = r->result;
    r->data = NULL;
    if (r->err == KB_DISK_ENOENT || (r->err == KB_DISK_OK && is_blank(data, size))) {
        open_log(o, now);
    } else if (r->err != KB_DISK_OK) {
        KB_SAY(o->p->node, KB_ERROR, "%s cannot be read (error %d)", o->metadata_path, r->os_errno);
        give_up(o, "its partition.metadata cannot be read", now);
    } else if (!read_metadata(data, (size_t)size, &id)) {
        KB_SAY(o->p->node, KB_ERROR, "%s is not in Kafka's format; remove it if the folder belongs to the topic %s", o->metadata_path,
               o->p->topic);
        give_up(o, "its partition.metadata cannot be understood", now);
    } else if (kw_uuid_eq(id, o->p->topic_id)) {
        o->found_metadata = true;
        open_log(o, now);
    } else {
        set_aside(o, id, now);
    }
    kw_free(data);
}

kw_err kb_opening_start(struct kb_partition *p, struct kb_now now) {
    (void)now;
    struct kb_opening *o = kw_calloc(1, sizeof(*o));
    if (!o) return KW_ENOMEM;
    o->p = p;
    o->dir = join("%s/%s-%d%s", p->node->log_dir, p->topic, p->index, "");
    o->metadata_path = join("%s/%s-%d%s", p->node->log_dir, p->topic, p->index, "/partition.metadata");
    if (!o->dir || !o->metadata_path) {
        kb_opening_free(o);
        return KW_ENOMEM;
    }
    o->req = (struct kb_disk_req){.op = KB_DISK_READ_FILE,
                                  .lane = KB_LANE_JOB,
                                  .path = o->metadata_path,
                                  .length = METADATA_SIZE_MAX,
                                  .done = metadata_read,
                                  .ctx = o};
    p->opening = o;
    p->node->partitions->opening++;
    kb_disk_submit(&p->node->parts.disk, &o->req);
    return KW_OK;
}

/* ---- What else lies in the data folder ---- */

struct removal {
    struct kb_disk_req req;
    struct kb_node *node;
    char path[];
};

static void removed(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    struct removal *m = r->ctx;
    if (r->err != KB_DISK_OK) KB_SAY(m->node, KB_WARN, "%s of a deleted topic cannot be removed (error %d)", m->path, r->os_errno);
    kw_free(m);
}

static kw_err remove_folder(struct kb_node *n, const char *name) {
    size_t size = strlen(n->log_dir) + strlen(name) + 2;
    struct removal *m = kw_calloc(1, sizeof(*m) + size);
    if (!m) return KW_ENOMEM;
    m->node = n;
    snprintf(m->path, size, "%s/%s", n->log_dir, name);
    m->req = (struct kb_disk_req){
        .op = KB_DISK_UNLINK, .lane = KB_LANE_JOB, .flags = KB_DISK_RECURSIVE, .path = m->path, .done = removed, .ctx = m};
    kb_disk_submit(&n->parts.disk, &m->req);
    return KW_OK;
}

static bool ends_with(const char *s, size_t n, const char *tail) {
    size_t t = strlen(tail);
    return n >= t && memcmp(s + n - t, tail, t) == 0;
}

/* "topic-N" of the image? Anything else with that shape is data that the metadata does not know. */
static bool looks_like_partition(const char *name, size_t n, struct kw_str *topic, int64_t *index) {
    const char *dash = memrchr(name, '-', n);
    if (!dash || dash == name) return false;
    *topic = (struct kw_str){name, (int32_t)(dash - name)};
    return kb_text_int(dash + 1, (size_t)(name + n - dash - 1), 0, INT32_MAX, index);
}

kw_err kb_strays_start(struct kb_node *n, const struct kb_found *found) {
    const char *name = (const char *)found->names;
    for (int64_t i = 0; i < found->name_count; i++, name += strlen(name) + 1) {
        size_t len = strlen(name);
        struct kw_str topic;
        int64_t index;
        if (ends_with(name, len, "-delete")) { /* a deletion that the last process did not finish */
            kw_err err = remove_folder(n, name);
            if (err != KW_OK) return err;
        } else if (looks_like_partition(name, len, &topic, &index) && strcmp(name, "__cluster_metadata-0") != 0) {
            struct kb_image_topic *t = kb_image_topic(&n->image, topic);
            if (!t || index >= t->partition_count)
                KB_SAY(n, KB_WARN, "%s/%s belongs to no topic that the metadata knows: left alone", n->log_dir, name);
        }
    }
    return KW_OK;
}
