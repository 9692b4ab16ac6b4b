/* opening.c - from a partition of the image to an open log: whose folder is it, then the log's own loading; and folders that are nobody's.
 *
 * Called by partitions.c. Calls the disk queue and log/. Files: `topic-N/partition.metadata` (KIP-516). A folder without one (segments that
 * Apache Kafka wrote) is taken over; one of another topic id (the topic was deleted and made again while this broker was down) is set
 * aside. So is, in a cluster, one without an id after the machine went down, or found by a partition that was made since the start: it may be
 * another topic's, and nothing of it was ever synced, since the id is durable before anything else of the log.
 */
#include <stdio.h>

#include "log/text.h"
#include "partitions_priv.h"
#include "uuid.h"

enum { METADATA_SIZE_MAX = 4096 };

struct kb_opening {
    struct kb_partition *p;
    struct kw_list parked; /* in the node's list while a deleted partition of the same name is on its way out */
    struct kb_disk_req req;
    struct kb_iov iov;
    char *dir, *metadata_path, *aside;
    char metadata[80];
    bool first; /* at the node's start: the last process knew this partition */
    bool found_metadata, set_aside, nameless;
    bool busy; /* the log is open, and something else is waited for */
    bool lacks, asked, told; /* lacks: something is missing that the others may count on (parked until the controller knows); asked, told of it */
    struct kb_point_waiter point;
    struct kb_points_waiter points;
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

/* ---- The chain: wait for a predecessor, read partition.metadata, set a foreign folder aside, open the log, write partition.metadata ---- */

static char *join(const char *fmt, const char *a, const char *b, int32_t c, const char *d) {
    size_t size = strlen(a) + strlen(b) + strlen(d) + 64;
    char *s = kw_malloc(size);
    if (s) snprintf(s, size, fmt, a, b, c, d);
    return s;
}

void kb_opening_free(struct kb_opening *o) {
    if (!o) return;
    kw_list_remove(&o->parked);
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
    p->opening = NULL; /* the marks may be looked at */
    if (p->state == KB_PART_LOADING && log->poisoned) kb_partition_offline(p, log->failure);
    if (p->state == KB_PART_LOADING) kb_partition_online(p, log, now);
    end(o, now);
}

/* With flush.on.ack nothing is served that a power loss could take back: what recovery found is synced first. */
void kb_opening_moved(struct kb_partition *p, struct kb_now now) {
    struct kb_opening *o = p->opening;
    if (!o || !p->log || o->busy) return;
    if (p->log->poisoned || !p->log_config.flush_on_ack || p->log->synced >= p->log->leo) finish(o, p->log, now);
}

static void settle(struct kb_opening *o, struct kb_now now) {
    struct kb_partition *p = o->p;
    struct kb_log *log = p->log;
    o->busy = false;
    if (p->log_config.flush_on_ack && log->synced < log->leo && kb_log_sync(log) == KW_OK && log->synced < log->leo) return;
    finish(o, log, now);
}

static void point_lowered(struct kb_point_waiter *w, bool stored, struct kb_now now) {
    (void)stored;
    settle(w->ctx, now);
}

/* The log ends below the recovery point that is on the disk (what was synced is lost): appended bytes must not be vouched for by it. */
static void lower_point(struct kb_opening *o, struct kb_now now) {
    struct kb_partition *p = o->p;
    if (p->state == KB_PART_DELETED || p->points[KB_POINT_RECOVERY] <= p->log->leo) {
        settle(o, now);
        return;
    }
    p->points[KB_POINT_RECOVERY] = p->log->recovery_point;
    o->point = (struct kb_point_waiter){.patient = true, .done = point_lowered, .ctx = o};
    o->busy = true;
    kb_partitions_store_point(p->node, KB_POINT_RECOVERY, &o->point);
}

static void metadata_written(struct kb_disk_req *r, struct kb_now now) {
    struct kb_opening *o = r->ctx;
    if (r->err != KB_DISK_OK && o->p->state != KB_PART_DELETED)
        KB_SAY(o->p->node, KB_WARN, "%s cannot be written (%s): the folder is taken for its topic by name at the next start",
               o->metadata_path, kb_os_text(r->os_errno));
    lower_point(o, now);
}

/* Not synced: that many files would take long. But it is there before anything else is, so that the first sync of the folder covers it: by it
 * recovery tells a lost tail from a gap that another tool left. In a cluster that sync writes it once more, and durably. */
static void write_metadata(struct kb_opening *o) {
    int len = (int)strlen(o->metadata);
    o->iov = (struct kb_iov){(const uint8_t *)o->metadata, (size_t)len};
    o->req = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                  .lane = KB_LANE_JOB,
                                  .path = o->metadata_path,
                                  .iov = &o->iov,
                                  .iov_count = 1,
                                  .done = metadata_written,
                                  .ctx = o};
    o->busy = true;
    kb_disk_submit(&o->p->node->parts.disk, &o->req);
}

/* Nothing of the damage is touched before it is committed that this replica does not count: else a start that dies in between would leave a log
 * that looks whole. */
static void tell_first(struct kb_opening *o, struct kb_now now) {
    struct kb_partition *p = o->p;
    KB_SAY(p->node, KB_WARN, "%s-%d has lost something that may have been committed: it leaves the in-sync replicas, and fetches it from the others",
           p->topic, p->index);
    o->lacks = true;
    kw_list_push(&p->node->partitions->parked, &o->parked);
    kb_dirs_look(p, NULL, now);
}

static void log_opened(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_opening *o = ctx;
    struct kb_partition *p = o->p;
    if (err == KW_ECRC && p->state != KB_PART_DELETED) {
        tell_first(o, now);
        return;
    }
    if (!log) { /* it has said why */
        give_up(o, "its log cannot be opened", now);
        return;
    }
    p->log = log;
    if (p->node->lifecycle && p->state != KB_PART_DELETED && !(o->found_metadata && p->node->start_marked && o->first) &&
        kb_log_identity(log, o->metadata, strlen(o->metadata))) {
        give_up(o, "no memory to tell its topic", now);
        return;
    }
    if (!o->found_metadata && p->state != KB_PART_DELETED)
        write_metadata(o);
    else
        lower_point(o, now);
}

/* The controller takes it for whole as it registers. */
static bool may_count(const struct kb_opening *o) {
    return o->p->node->lifecycle && o->first && !o->told && o->p->replica_count > 1;
}

static bool is_in_sync(const struct kb_partition *p) {
    return kb_ids_have(p->isr, p->isr_count, p->node->id);
}

/* The last in sync keeps whatever may be right: nobody else has it. */
static enum kb_others others_of(const struct kb_opening *o) {
    const struct kb_partition *p = o->p;
    if (may_count(o)) return KB_OTHERS_MAY_COUNT;
    if (!o->told || p->isr_count == 0 || is_in_sync(p)) return KB_OTHERS_NONE;
    return p->leader_id >= 0 ? KB_OTHERS_LEAD : KB_OTHERS_HAVE_IT;
}

static void open_log(void *ctx, struct kb_now now) {
    struct kb_opening *o = ctx;
    struct kb_partition *p = o->p;
    struct kb_partitions *ps = p->node->partitions;
    struct kb_log_open open = {.env = &p->node->parts.log_env,
                               .config = &p->log_config,
                               .owner = kb_partition_owner(p),
                               .dir = o->dir,
                               .create = true,
                               .clean = ps->found_clean && o->first && !o->set_aside,
                               .identity = p->node->lifecycle != NULL,
                               .start_checkpoint = p->points[KB_POINT_START],
                               .recovery_point = p->points[KB_POINT_RECOVERY],
                               .others = others_of(o),
                               .killed = !p->node->start_unclean,
                               .committed = p->points[KB_POINT_HW],
                               .done = log_opened,
                               .ctx = o};
    if (kb_log_open(&open) != KW_OK) give_up(o, "no memory to open its log", now);
}

static void aside_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_opening *o = r->ctx;
    if (r->err == KB_DISK_ENOENT) { /* there is no folder */
        open_log(o, now);
        return;
    }
    if (r->err != KB_DISK_OK) {
        KB_SAY(o->p->node, KB_ERROR, "%s belongs to another topic of that name and cannot be renamed to %s (%s)", o->dir, o->aside,
               kb_os_text(r->os_errno));
        give_up(o, "its folder holds another topic's data", now);
        return;
    }
    KB_SAY(o->p->node, KB_WARN, o->nameless ? "%s does not say which topic it belongs to, as nothing in it was synced: set aside as %s"
                                            : "%s belonged to another topic of that name: set aside as %s", o->dir, o->aside);
    o->set_aside = true;
    o->p->known_at_start = false;
    /* What the checkpoint files say was another's: it must be gone from them before this one has a log. */
    for (size_t i = 0; i < KB_POINT_COUNT; i++) o->p->points[i] = -1;
    kb_partitions_forget_points(o->p->node, &o->points, open_log, o);
}

/* old: the topic's id; of one that is not known, when that was. */
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
    bool missing = r->err == KB_DISK_ENOENT || (r->err == KB_DISK_OK && is_blank(data, size));
    if (missing && o->p->node->lifecycle && (o->p->node->start_unclean || !o->first)) {
        struct kw_uuid when = {{0}};
        kw_store64(when.b + 8, (uint64_t)now.wall_ms);
        o->nameless = true;
        set_aside(o, when, now);
    } else if (missing) {
        open_log(o, now);
    } else if (r->err != KB_DISK_OK) {
        KB_SAY(o->p->node, KB_ERROR, "%s cannot be read (%s)", o->metadata_path, kb_os_text(r->os_errno));
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

static void begin(struct kb_opening *o, struct kb_now now) {
    struct kb_partition *p = o->p;
    if (p->state == KB_PART_DELETED) {
        end(o, now);
        return;
    }
    p->untouched = false;
    o->req = (struct kb_disk_req){.op = KB_DISK_READ_FILE,
                                  .lane = KB_LANE_JOB,
                                  .path = o->metadata_path,
                                  .length = METADATA_SIZE_MAX,
                                  .done = metadata_read,
                                  .ctx = o};
    kb_disk_submit(&p->node->parts.disk, &o->req);
}

void kb_openings_unpark(struct kb_node *n, const struct kb_partition *gone, struct kb_now now) {
    struct kw_list *parked = &n->partitions->parked, left;
    kw_list_init(&left);
    for (struct kw_list *l; (l = kw_list_shift(parked));) {
        struct kb_opening *o = KW_CONTAINER_OF(l, struct kb_opening, parked);
        bool waits = o->lacks || (gone && !kb_partition_same_name(gone, o->p)) || kb_partitions_leaving(o->p);
        if (o->p->state != KB_PART_DELETED && waits)
            kw_list_push(&left, l);
        else
            begin(o, now);
    }
    for (struct kw_list *l; (l = kw_list_shift(&left));) kw_list_push(parked, l);
}

bool kb_opening_lacks(const struct kb_partition *p) {
    return p->opening && p->opening->lacks;
}

void kb_opening_asks(struct kb_partition *p) {
    p->opening->asked = true;
}

void kb_opening_answered(struct kb_partition *p, bool known, struct kb_now now) {
    struct kb_opening *o = p->opening;
    if (!kb_opening_lacks(p) || !o->asked) return;
    o->asked = false;
    if (!known || (is_in_sync(p) && p->isr_count > 1)) return; /* asked again: the image, which lags behind the answer, tells whether others are in sync */
    o->lacks = false;
    o->told = true;
    kw_list_remove(&o->parked);
    open_log(o, now);
}

char *kb_partition_folder(const struct kb_partition *p) {
    return join("%s/%s-%d%s", p->node->log_dir, p->topic, p->index, "");
}

kw_err kb_opening_start(struct kb_partition *p, struct kb_now now) {
    struct kb_partitions *ps = p->node->partitions;
    struct kb_opening *o = kw_calloc(1, sizeof(*o));
    if (!o) return KW_ENOMEM;
    kw_list_init(&o->parked);
    o->p = p;
    o->first = p->known_at_start = !ps->loaded;
    o->dir = kb_partition_folder(p);
    o->metadata_path = join("%s/%s-%d%s", p->node->log_dir, p->topic, p->index, "/partition.metadata");
    char id[23];
    kb_uuid_text(p->topic_id, id);
    snprintf(o->metadata, sizeof(o->metadata), "version: 0\ntopic_id: %s", id);
    if (!o->dir || !o->metadata_path) {
        kb_opening_free(o);
        return KW_ENOMEM;
    }
    p->opening = o;
    ps->opening++;
    if (kb_partitions_leaving(p))
        kw_list_push(&ps->parked, &o->parked);
    else
        begin(o, now);
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
    if (r->err != KB_DISK_OK) KB_SAY(m->node, KB_WARN, "%s of a deleted topic cannot be removed (%s)", m->path, kb_os_text(r->os_errno));
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

/* "topic-N" of the image? Anything else with that shape is data that the metadata does not know, or knows elsewhere: what was deleted, or moved away,
 * while this broker was down. It is named and kept. */
static bool looks_like_partition(const char *name, size_t n, struct kw_str *topic, int64_t *index) {
    const char *dash = memrchr(name, '-', n);
    if (!dash || dash == name) return false;
    *topic = (struct kw_str){name, (int32_t)(dash - name)};
    return kb_text_int(dash + 1, (size_t)(name + n - dash - 1), 0, INT32_MAX, index);
}

static void say_stray(struct kb_node *n, const char *name, struct kw_str topic, int64_t index) {
    const struct kb_image_topic *t = kb_image_topic(&n->image, topic);
    bool known = t && index < t->partition_count;
    if (known && kb_ids_have(t->partitions[index].replicas, t->partitions[index].replica_count, n->id)) return;
    KB_SAY(n, KB_WARN, "%s/%s belongs to no %s: left alone", n->log_dir, name, known ? "replica of this broker's" : "topic that the metadata knows");
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
            say_stray(n, name, topic, index);
        }
    }
    return KW_OK;
}
