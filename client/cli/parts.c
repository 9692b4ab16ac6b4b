/* parts.c - topics of the cluster by name, and the partitions that a command line names: TOPIC, TOPIC:PARTITION, or all. Called by elect, group and
 * reassign. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct word {
    char topic[250];
    int64_t partition; /* -1: all */
};

static bool split(const char *text, struct word *w) {
    const char *colon = strchr(text, ':'); /* no topic's name has one */
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n == 0 || n >= sizeof w->topic) return false;
    memcpy(w->topic, text, n);
    w->topic[n] = 0;
    w->partition = -1;
    return !colon || (colon[1] != '-' && cli_number(colon + 1, 0, INT32_MAX, &w->partition));
}

int cli_parts_check(const struct cli_command *c, const char *const *words, int count) {
    struct word w;
    for (int i = 0; i < count; i++)
        if (!split(words[i], &w)) return cli_usage_error(c, "'%s' is neither TOPIC nor TOPIC:PARTITION", words[i]);
    return -1;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct cli_topic *)a)->said.name, ((const struct cli_topic *)b)->said.name);
}

bool cli_topics_make(struct cli_topics *t, const kc_cluster_info *info) {
    size_t n = kc_cluster_info_topic_count(info);
    kc_topic_info topic;
    *t = (struct cli_topics){.v = calloc(n + 1, sizeof *t->v), .info = info};
    if (!t->v) return false;
    for (size_t i = 0; kc_cluster_info_topic(info, i, &topic) == KC_OK; i++) t->v[t->count++] = (struct cli_topic){topic, i};
    qsort(t->v, t->count, sizeof *t->v, by_name);
    return true;
}

const struct cli_topic *cli_topics_find(const struct cli_topics *t, const char *name) {
    const struct cli_topic key = {.said = {.name = name}}, *found = t->count > 0 ? bsearch(&key, t->v, t->count, sizeof key, by_name) : NULL;
    return found && found->said.err == KC_OK ? found : NULL;
}

void cli_topics_free(struct cli_topics *t) {
    free(t->v);
    *t = (struct cli_topics){0};
}

bool cli_part_find(const struct cli_topics *topics, const char *topic, int32_t partition, kc_partition_info *out) {
    const struct cli_topic *t = cli_topics_find(topics, topic);
    if (!t || partition < 0) return false;
    if (kc_cluster_info_partition(topics->info, t->index, (size_t)partition, out) == KC_OK && out->partition == partition) return true; /* as it mostly is */
    for (size_t k = 0; kc_cluster_info_partition(topics->info, t->index, k, out) == KC_OK; k++)
        if (out->partition == partition) return true;
    return false;
}

static bool add(struct cli_parts *out, const char *topic, const kc_partition_info *p, size_t *cap) {
    if (out->count == *cap) {
        *cap = *cap ? *cap * 2 : 64;
        struct cli_part *grown = realloc(out->v, *cap * sizeof *grown);
        if (!grown) return false;
        out->v = grown;
    }
    out->v[out->count++] = (struct cli_part){topic, *p};
    return true;
}

static bool add_all(const struct cli_topics *topics, const struct cli_topic *t, struct cli_parts *out, size_t *cap) {
    kc_partition_info p;
    for (size_t k = 0; kc_cluster_info_partition(topics->info, t->index, k, &p) == KC_OK; k++)
        if (!add(out, t->said.name, &p, cap)) return false;
    return true;
}

static bool add_every_topic(const struct cli_topics *topics, struct cli_parts *out, size_t *cap) {
    kc_topic_info t;
    for (size_t i = 0; kc_cluster_info_topic(topics->info, i, &t) == KC_OK; i++)
        if (!add_all(topics, &(struct cli_topic){t, i}, out, cap)) return false;
    return true;
}

static bool add_named(const struct cli_topics *topics, const char *text, struct cli_parts *out, size_t *cap) {
    struct word w = {0};
    kc_partition_info p;
    (void)split(text, &w); /* checked before */
    const struct cli_topic *t = cli_topics_find(topics, w.topic);
    if (!t) return true;
    if (w.partition < 0) return add_all(topics, t, out, cap);
    return !cli_part_find(topics, w.topic, (int32_t)w.partition, &p) || add(out, t->said.name, &p, cap);
}

struct named { /* a partition, and which word names it */
    const struct cli_part *part;
    int word;
};

static int by_place(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int topics = strcmp(x->part->topic, y->part->topic);
    if (topics != 0) return topics;
    if (x->part->p.partition != y->part->p.partition) return x->part->p.partition < y->part->p.partition ? -1 : 1;
    return x->word < y->word ? -1 : x->word > y->word;
}

/* The first word that names a partition once more. -1: none does; else the exit code. */
static int check_twice(const struct cli_command *c, const char *const *words, const struct cli_parts *parts, struct named *v) {
    int first = -1, second = -1;
    if (parts->count > 0) qsort(v, parts->count, sizeof *v, by_place);
    for (size_t i = 1; i < parts->count; i++) {
        bool same = v[i].part->p.partition == v[i - 1].part->p.partition && !strcmp(v[i].part->topic, v[i - 1].part->topic);
        if (!same || (second >= 0 && v[i].word >= second)) continue;
        first = v[i - 1].word;
        second = v[i].word;
    }
    return second < 0 ? -1 : cli_usage_error(c, "'%s' and '%s' name the same partition", words[first], words[second]);
}

int cli_parts_find(const struct cli_command *c, const kc_cluster_info *info, const char *const *words, int count, struct cli_parts *out) {
    size_t cap = 0, *ends = calloc((size_t)count + 1, sizeof *ends); /* how many there are with each word */
    struct cli_topics topics;
    *out = (struct cli_parts){0};
    bool ok = cli_topics_make(&topics, info) && ends && (count > 0 || add_every_topic(&topics, out, &cap));
    int none = -1; /* the first word that names nothing */
    for (int i = 0; ok && none < 0 && i < count; i++) {
        ok = add_named(&topics, words[i], out, &cap);
        ends[i] = out->count;
        if (ok && out->count == (i > 0 ? ends[i - 1] : 0)) none = i;
    }
    struct named *v = ok ? calloc(out->count + 1, sizeof *v) : NULL;
    for (size_t k = 0, i = 0; v && count > 0 && none < 0 && k < out->count; k++) {
        while (ends[i] <= k) i++;
        v[k] = (struct named){&out->v[k], (int)i};
    }
    int rc = CLI_OK;
    if (!v) {
        rc = cli_fail(c->name, KC_NO_MEMORY, NULL);
    } else if (none >= 0) {
        fprintf(stderr, "kc: %s: there is no %s %s\n  kc topic list shows which topics there are\n", c->name, strchr(words[none], ':') ? "partition" : "topic",
                words[none]);
        rc = CLI_FAILURE;
    } else if (count > 0) {
        int twice = check_twice(c, words, out, v);
        rc = twice >= 0 ? twice : CLI_OK;
    }
    free(v);
    free(ends);
    cli_topics_free(&topics);
    return rc;
}

void cli_parts_free(struct cli_parts *p) {
    free(p->v);
    *p = (struct cli_parts){0};
}

void cli_json_part(const char *topic, int32_t partition) {
    printf("{\"topic\":");
    cli_json_text(stdout, topic, strlen(topic));
    printf(",\"partition\":%d", (int)partition);
}
