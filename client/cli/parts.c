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

struct finding {
    struct cli_topics topics;
    struct cli_parts *out;
    size_t cap;
    int word; /* at hand */
};

static bool add(struct finding *f, const char *topic, const kc_partition_info *p) {
    if (f->out->count == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 64;
        struct cli_part *grown = realloc(f->out->v, cap * sizeof *grown);
        if (!grown) return false;
        f->out->v = grown;
        f->cap = cap;
    }
    f->out->v[f->out->count++] = (struct cli_part){topic, *p, f->word};
    return true;
}

static bool add_all(struct finding *f, const struct cli_topic *t) {
    kc_partition_info p;
    for (size_t k = 0; kc_cluster_info_partition(f->topics.info, t->index, k, &p) == KC_OK; k++)
        if (!add(f, t->said.name, &p)) return false;
    return true;
}

static bool add_every_topic(struct finding *f) {
    kc_topic_info t;
    for (size_t i = 0; kc_cluster_info_topic(f->topics.info, i, &t) == KC_OK; i++)
        if (!add_all(f, &(struct cli_topic){t, i})) return false;
    return true;
}

static bool add_named(struct finding *f, const char *text) {
    struct word w = {0};
    kc_partition_info p;
    (void)split(text, &w); /* checked before */
    const struct cli_topic *t = cli_topics_find(&f->topics, w.topic);
    if (!t) return true;
    if (w.partition < 0) return add_all(f, t);
    return !cli_part_find(&f->topics, w.topic, (int32_t)w.partition, &p) || add(f, t->said.name, &p);
}

static bool is_same(const struct cli_part *x, const struct cli_part *y) {
    return x->p.partition == y->p.partition && !strcmp(x->topic, y->topic);
}

static int by_place(const void *a, const void *b) {
    const struct cli_part *x = *(const struct cli_part *const *)a, *y = *(const struct cli_part *const *)b;
    int topics = strcmp(x->topic, y->topic);
    if (topics != 0) return topics;
    if (x->p.partition != y->p.partition) return x->p.partition < y->p.partition ? -1 : 1;
    return x->word < y->word ? -1 : x->word > y->word;
}

/* Tells of the first word that names a partition once more. CLI_OK: none does. */
static int check_twice(const struct cli_command *c, const char *const *words, const struct cli_parts *parts) {
    const struct cli_part **v = calloc(parts->count + 1, sizeof(const struct cli_part *)); /* in order */
    const struct cli_part *first = NULL, *second = NULL;
    if (!v) return cli_fail(c->name, KC_NO_MEMORY, NULL);
    for (size_t i = 0; i < parts->count; i++) v[i] = &parts->v[i];
    qsort(v, parts->count, sizeof(const struct cli_part *), by_place);
    for (size_t i = 1; i < parts->count; i++) {
        if (!is_same(v[i - 1], v[i]) || (second && v[i]->word >= second->word)) continue;
        first = v[i - 1];
        second = v[i];
    }
    free(v);
    return second ? cli_usage_error(c, "'%s' and '%s' name the same partition", words[first->word], words[second->word]) : CLI_OK;
}

static int find_named(const struct cli_command *c, const char *const *words, int count, struct finding *f) {
    for (; f->word < count; f->word++) {
        const char *word = words[f->word];
        size_t before = f->out->count;
        if (!add_named(f, word)) return cli_fail(c->name, KC_NO_MEMORY, NULL);
        if (f->out->count > before) continue;
        fprintf(stderr, "kc: %s: there is no %s %s\n  kc topic list shows which topics there are\n", c->name, strchr(word, ':') ? "partition" : "topic", word);
        return CLI_FAILURE;
    }
    return check_twice(c, words, f->out);
}

int cli_parts_find(const struct cli_command *c, const kc_cluster_info *info, const char *const *words, int count, struct cli_parts *out) {
    struct finding f = {.out = out};
    int rc = CLI_OK;
    *out = (struct cli_parts){0};
    if (!cli_topics_make(&f.topics, info) || (count == 0 && !add_every_topic(&f)))
        rc = cli_fail(c->name, KC_NO_MEMORY, NULL);
    else if (count > 0)
        rc = find_named(c, words, count, &f);
    cli_topics_free(&f.topics);
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
