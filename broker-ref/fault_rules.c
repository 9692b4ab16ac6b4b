/* fault_rules.c - fault rules out of JSON (README.md "Fault rules"), with errors that say which rule, what is wrong and what is meant.
 *
 * Called by node (--faults, and rules that come while it runs). Calls jansson, wire/kerror, wire/codec (API names).
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/nearest.h"
#include "fault_priv.h"

enum { RULES_MAX = 1000 };

struct parse {
    struct kb_fault_wrong *wrong;
    int number;
};

/* Texts are cut where they are too long, but not amidst a letter: they go on as JSON. */
static void whole_letters(char *s) {
    size_t n = strlen(s), back = 1;
    while (back <= n && back < 4 && ((uint8_t)s[n - back] & 0xc0) == 0x80) back++;
    if (back > n) return;
    uint8_t lead = (uint8_t)s[n - back];
    size_t wants = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (wants > back) s[n - back] = 0;
}

/* field: NULL where it is no single one's fault. */
static kw_err bad(struct parse *p, const char *field, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static kw_err bad(struct parse *p, const char *field, const char *fmt, ...) {
    struct kb_fault_wrong *w = p->wrong;
    int n = p->number > 0 ? snprintf(w->text, sizeof(w->text), "rule %d: ", p->number) : 0;
    va_list ap;
    va_start(ap, fmt);
    if (n >= 0 && (size_t)n < sizeof(w->text)) vsnprintf(w->text + n, sizeof(w->text) - (size_t)n, fmt, ap);
    va_end(ap);
    w->rule = p->number;
    snprintf(w->field, sizeof(w->field), "%s", field ? field : "");
    whole_letters(w->text);
    whole_letters(w->field);
    return KW_EINVAL;
}

static kw_err unknown(struct parse *p, const char *field, const char *what, const struct kw_nearest *n) {
    return n->best ? bad(p, field, "%s \"%s\"; did you mean \"%s\"?", what, n->word, n->best) : bad(p, field, "%s \"%s\"", what, n->word);
}

/* ---- Values ---- */

static kw_err take_api(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    const struct kw_api *a = NULL;
    if (json_is_string(v)) a = kw_api_by_name(json_string_value(v));
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT16_MAX) a = kw_api_by_key((int16_t)json_integer_value(v));
    if (a) {
        r->api_key = a->key;
        return KW_OK;
    }
    if (!json_is_string(v)) return bad(p, "api", "\"api\" is the name or the key of an API, such as \"Produce\" or 0");
    struct kw_nearest near;
    kw_nearest_init(&near, json_string_value(v));
    for (size_t i = 0; i < kw_api_count; i++) kw_nearest_offer(&near, kw_apis[i].name);
    return unknown(p, "api", "no API is called", &near);
}

static kw_err take_disk(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    static const char *const ops[] = {[KB_FAULT_READ] = "read", [KB_FAULT_WRITE] = "write", [KB_FAULT_SYNC] = "sync"};
    for (unsigned i = KB_FAULT_READ; i <= KB_FAULT_SYNC && json_is_string(v); i++)
        if (strcmp(json_string_value(v), ops[i]) == 0) r->disk = i;
    return r->disk ? KW_OK : bad(p, "disk", "\"disk\" is \"read\", \"write\" or \"sync\"");
}

static kw_err take_error(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    if (json_is_string(v) && (strcmp(json_string_value(v), "EIO") == 0 || strcmp(json_string_value(v), "ENOSPC") == 0)) {
        r->disk_error = json_string_value(v)[1] == 'I' ? KB_DISK_EIO : KB_DISK_ENOSPC;
        return KW_OK;
    }
    const struct kw_kerror_info *e = json_is_string(v) ? kw_kerror_by_name(json_string_value(v)) : NULL;
    if (e && e->code >= -1 && e->code <= INT16_MAX) {
        r->error = (int16_t)e->code;
    } else if (json_is_integer(v) && json_integer_value(v) >= -1 && json_integer_value(v) <= INT16_MAX) {
        r->error = (int16_t)json_integer_value(v);
    } else {
        return bad(p, "error", "\"error\" is the name or the number of a Kafka error, such as \"NOT_LEADER_OR_FOLLOWER\" or 6");
    }
    r->has_error = true;
    return KW_OK;
}

static kw_err take_versions(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    int64_t lo, hi;
    if (json_is_integer(v)) {
        lo = hi = json_integer_value(v);
    } else if (json_is_array(v) && json_array_size(v) == 2 && json_is_integer(json_array_get(v, 0)) &&
               json_is_integer(json_array_get(v, 1))) {
        lo = json_integer_value(json_array_get(v, 0));
        hi = json_integer_value(json_array_get(v, 1));
    } else {
        return bad(p, "versions", "\"versions\" is a number or two, such as 3 or [3, 9]");
    }
    if (lo < 0 || hi < lo || hi > INT16_MAX) return bad(p, "versions", "\"versions\" goes from a lower to a higher number");
    r->version_min = (int16_t)lo;
    r->version_max = (int16_t)hi;
    return KW_OK;
}

static kw_err take_when(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    const char *s = json_string_value(v);
    if (!s || (strcmp(s, "before") != 0 && strcmp(s, "after") != 0))
        return bad(p, "when", "\"when\" is \"before\" (nothing is done) or \"after\" (it is done)");
    r->after_effect = strcmp(s, "after") == 0;
    return KW_OK;
}

static kw_err take_from(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    const char *s = json_string_value(v);
    r->from = s && strcmp(s, "clients") == 0 ? KB_FAULT_CLIENTS : s && strcmp(s, "nodes") == 0 ? KB_FAULT_NODES : KB_FAULT_ANYBODY;
    return r->from != KB_FAULT_ANYBODY ? KW_OK : bad(p, "from", "\"from\" is \"clients\" or \"nodes\" (the cluster's own)");
}

static kw_err take_text(struct parse *p, const char *name, const json_t *v, char **out) {
    if (!json_is_string(v)) return bad(p, name, "\"%s\" is a text", name);
    size_t n = json_string_length(v);
    kw_free(*out);
    *out = kw_memdup(json_string_value(v), n + 1);
    return *out ? KW_OK : KW_ENOMEM;
}

static kw_err take_flag(struct parse *p, const char *name, const json_t *v, bool *out) {
    if (!json_is_boolean(v)) return bad(p, name, "\"%s\" is true or false", name);
    *out = json_is_true(v);
    return KW_OK;
}

static kw_err take_int(struct parse *p, const char *name, const json_t *v, int64_t min, int64_t max, int64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return bad(p, name, "\"%s\" is a whole number from %lld to %lld", name, (long long)min, (long long)max);
    *out = json_integer_value(v);
    return KW_OK;
}

static kw_err take_percent(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!(d >= 0 && d <= 100)) return bad(p, "percent", "\"percent\" is a number from 0 to 100");
    r->per_million = (uint32_t)(d * 10000 + 0.5);
    return KW_OK;
}

static kw_err take_number(struct parse *p, const char *name, const json_t *v, struct kb_fault_rule *r, bool *known) {
    static const struct {
        const char *name;
        int64_t min, max;
    } numbers[] = {{"partition", 0, INT32_MAX},      {"broker", 0, INT32_MAX},      {"nth", 1, INT32_MAX},
                   {"every", 1, INT32_MAX},          {"times", 1, INT32_MAX},       {"after", 0, INT32_MAX},
                   {"delay_ms", 0, 86400000},        {"throttle_ms", 0, INT32_MAX}, {"drip_bytes_per_s", 1, 1 << 30},
                   {"corrupt", INT32_MIN, INT32_MAX}};
    for (size_t i = 0; i < KW_COUNTOF(numbers); i++) {
        if (strcmp(name, numbers[i].name) != 0) continue;
        int64_t n = 0;
        kw_err err = take_int(p, name, v, numbers[i].min, numbers[i].max, &n);
        if (err != KW_OK) return err;
        *known = true;
        switch (i) {
        case 0:
            r->partition = (int32_t)n;
            break;
        case 1:
            r->broker = (int32_t)n;
            break;
        case 2:
            r->nth = (uint64_t)n;
            break;
        case 3:
            r->every = (uint64_t)n;
            break;
        case 4:
            r->times = (uint64_t)n;
            break;
        case 5:
            r->after = (uint64_t)n;
            break;
        case 6:
            r->delay_us = n * 1000;
            break;
        case 7:
            r->throttle_ms = (int32_t)n;
            break;
        case 8:
            r->drip_bytes_per_s = n;
            break;
        default:
            r->corrupts = true;
            r->corrupt_at = n;
        }
    }
    return KW_OK;
}

static kw_err take_field(struct parse *p, const char *name, const json_t *v, struct kb_fault_rule *r) {
    static const char *const names[] = {"api",         "versions",         "client_id", "topic", "partition", "broker",   "after", "nth",
                                        "every",       "percent",          "times",     "when",  "error",     "delay_ms", "close", "stall",
                                        "throttle_ms", "drip_bytes_per_s", "corrupt",   "note",  "disk",      "group",    "from"};
    if (strcmp(name, "api") == 0) return take_api(p, v, r);
    if (strcmp(name, "versions") == 0) return take_versions(p, v, r);
    if (strcmp(name, "client_id") == 0) return take_text(p, name, v, &r->client_id);
    if (strcmp(name, "topic") == 0) return take_text(p, name, v, &r->topic);
    if (strcmp(name, "group") == 0) return take_text(p, name, v, &r->group);
    if (strcmp(name, "from") == 0) return take_from(p, v, r);
    if (strcmp(name, "percent") == 0) return take_percent(p, v, r);
    if (strcmp(name, "when") == 0) return take_when(p, v, r);
    if (strcmp(name, "disk") == 0) return take_disk(p, v, r);
    if (strcmp(name, "error") == 0) return take_error(p, v, r);
    if (strcmp(name, "close") == 0) return take_flag(p, name, v, &r->close);
    if (strcmp(name, "stall") == 0) return take_flag(p, name, v, &r->stall);
    if (strcmp(name, "note") == 0) return KW_OK; /* for the reader of the file */
    bool known = false;
    kw_err err = take_number(p, name, v, r, &known);
    if (err != KW_OK || known) return err;
    struct kw_nearest near;
    kw_nearest_init(&near, name);
    for (size_t i = 0; i < KW_COUNTOF(names); i++) kw_nearest_offer(&near, names[i]);
    return unknown(p, name, "nothing is called", &near);
}

/* The one of a disk rule's fields that only a request has; NULL: none. */
static const char *of_requests(const struct kb_fault_rule *r) {
    const struct {
        bool given;
        const char *name;
    } fields[] = {{r->api_key >= 0, "api"},       {r->client_id, "client_id"},      {r->group, "group"},
                  {r->from, "from"},              {r->version_max < INT16_MAX, "versions"}, {r->close, "close"},
                  {r->stall, "stall"},            {r->has_error, "error"},          {r->corrupts, "corrupt"},
                  {r->after_effect, "when"},      {r->delay_us > 0, "delay_ms"},    {r->throttle_ms > 0, "throttle_ms"},
                  {r->drip_bytes_per_s > 0, "drip_bytes_per_s"}};
    for (size_t i = 0; i < KW_COUNTOF(fields); i++)
        if (fields[i].given) return fields[i].name;
    return NULL;
}

/* What its fields make together. */
static kw_err check_rule(struct parse *p, const struct kb_fault_rule *r) {
    const char *other = r->disk ? of_requests(r) : NULL;
    if (r->disk && (other || !r->disk_error))
        return bad(p, other ? other : "error", "a \"disk\" rule goes with broker, topic, partition, how often, and \"error\": \"EIO\" or \"ENOSPC\"");
    if (!r->disk && r->disk_error) return bad(p, "error", "that error is a disk's: say which of its operations fail, such as \"disk\": \"write\"");
    if (r->disk_error == KB_DISK_ENOSPC && r->disk != KB_FAULT_WRITE) return bad(p, "error", "only writes fail with ENOSPC");
    if ((r->nth > 0) + (r->every > 0) + (r->per_million < 1000000) > 1)
        return bad(p, r->per_million < 1000000 ? "percent" : "every", "\"nth\", \"every\" and \"percent\" exclude one another");
    if ((int)r->close + (int)r->stall + (int)r->has_error > 1)
        return bad(p, r->stall ? "stall" : "close", "\"close\", \"stall\" and \"error\" exclude one another");
    if (!r->disk && !r->close && !r->stall && !r->has_error && !r->corrupts && r->delay_us == 0 && r->throttle_ms == 0 && r->drip_bytes_per_s == 0)
        return bad(p, NULL, "it does nothing: give one of error, close, stall, delay_ms, throttle_ms, drip_bytes_per_s, corrupt");
    return KW_OK;
}

static kw_err take_rule(struct parse *p, const json_t *v, struct kb_fault_rule *r) {
    *r = (struct kb_fault_rule){.refs = 1, .api_key = -1, .version_max = INT16_MAX, .broker = -1, .partition = -1, .per_million = 1000000};
    kw_list_init(&r->link);
    if (!json_is_object(v))
        return bad(p, NULL, "a rule is an object, such as {\"api\": \"Produce\", \"nth\": 3, \"error\": \"NOT_LEADER_OR_FOLLOWER\"}");
    const char *name;
    json_t *field;
    json_object_foreach((json_t *)(uintptr_t)v, name, field) {
        kw_err err = take_field(p, name, field, r);
        if (err != KW_OK) return err;
    }
    return check_rule(p, r);
}

/* One more at the end of `fresh`; what is half made is there too, for the caller to free. */
static kw_err add_rule(struct parse *p, const json_t *v, struct kw_list *fresh) {
    struct kb_fault_rule *r = kw_malloc(sizeof(*r));
    if (!r) return KW_ENOMEM;
    kw_err err = take_rule(p, v, r);
    kw_list_push(fresh, &r->link);
    if (err != KW_OK) return err;
    char *text = json_dumps(v, JSON_COMPACT);
    r->text = text ? kw_memdup(text, strlen(text) + 1) : NULL;
    free(text);
    return r->text ? KW_OK : KW_ENOMEM;
}

kw_err kb_faults_add(struct kb_faults *f, const char *json, int32_t *first, struct kb_fault_wrong *wrong) {
    struct parse p = {.wrong = wrong};
    json_error_t e;
    struct kw_list fresh, *l;
    kw_err err = KW_OK;
    kw_list_init(&fresh);
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &e);
    if (!root) return bad(&p, NULL, "not JSON: %s (line %d, column %d)", e.text, e.line, e.column);
    const json_t *rules = json_is_object(root) && json_object_get(root, "rules") ? json_object_get(root, "rules") : root;
    size_t n = json_is_array(rules) ? json_array_size(rules) : 1;
    if ((!json_is_array(rules) && rules != root) || (!json_is_array(root) && !json_is_object(root)) || n > RULES_MAX - f->count)
        err = bad(&p, NULL, "expected {\"rules\": [ … ]} or one rule, and at most %d of them", RULES_MAX);
    for (size_t i = 0; err == KW_OK && i < n; i++) {
        p.number = (int)i + 1;
        err = add_rule(&p, json_is_array(rules) ? json_array_get(rules, i) : rules, &fresh);
    }
    json_decref(root);
    if (first) *first = f->last_number + 1;
    while ((l = kw_list_shift(&fresh))) {
        struct kb_fault_rule *r = KW_CONTAINER_OF(l, struct kb_fault_rule, link);
        if (err != KW_OK) {
            kb_fault_rule_unref(r);
            continue;
        }
        r->number = ++f->last_number;
        f->count++;
        kw_list_push(&f->rules, l);
    }
    return err;
}

char *kb_faults_list(const struct kb_faults *f) {
    size_t cap = 20, at = 0;
    for (const struct kw_list *l = f->rules.next; l != &f->rules; l = l->next)
        cap += strlen(KW_CONTAINER_OF(l, const struct kb_fault_rule, link)->text) + 120;
    char *out = kw_malloc(cap);
    if (!out) return NULL;
    at += (size_t)snprintf(out, cap, "{\"rules\":[");
    for (const struct kw_list *l = f->rules.next; l != &f->rules; l = l->next) {
        const struct kb_fault_rule *r = KW_CONTAINER_OF(l, const struct kb_fault_rule, link);
        at += (size_t)snprintf(out + at, cap - at, "%s{\"number\":%d,\"seen\":%llu,\"hits\":%llu,\"rule\":%s}", l == f->rules.next ? "" : ",",
                               r->number, (unsigned long long)r->seen, (unsigned long long)r->hits, r->text);
    }
    snprintf(out + at, cap - at, "]}");
    return out;
}
