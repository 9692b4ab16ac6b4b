/* config_net.c - listeners taken apart, profiles, and the checks that need more than one entry.
 *
 * Called by main after all properties are set, by the shell (where to listen) and the node (what to advertise).
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "config_priv.h"

static bool is_controller_listener(const struct kb_config *c, struct kw_str name) {
    const char *names = kb_config_get(c, "controller.listener.names"), *p;
    size_t n;
    while (kb_config_item(&names, &p, &n))
        if (n == (size_t)name.len && memcmp(p, name.p, n) == 0) return true;
    return false;
}

/* NAME://HOST:PORT, or NAME://[IPV6]:PORT. */
static bool parse_listener(const char *p, size_t n, struct kb_listener *l) {
    const char *end = p + n, *sep = NULL;
    for (const char *s = p; s + 3 <= end && !sep; s++)
        if (memcmp(s, "://", 3) == 0) sep = s;
    if (!sep || sep == p) return false;
    l->name = (struct kw_str){p, (int32_t)(sep - p)};
    const char *host = sep + 3, *host_end, *colon = end;
    while (colon > host && colon[-1] != ':') colon--;
    if (colon == host) return false;
    host_end = colon - 1;
    if (host < host_end && *host == '[') {
        if (host_end[-1] != ']') return false;
        host++;
        host_end--;
    } else if (memchr(host, ':', (size_t)(host_end - host))) {
        return false;
    }
    l->host = (struct kw_str){host, (int32_t)(host_end - host)};
    if (colon == end) return false;
    uint32_t port = 0;
    for (; colon < end; colon++) {
        if (*colon < '0' || *colon > '9') return false;
        port = port * 10 + (uint32_t)(*colon - '0');
        if (port > 65535) return false;
    }
    l->port = (uint16_t)port;
    return true;
}

static size_t listeners(const struct kb_config *c, const char *property, bool controller, struct kb_listener *out, size_t max) {
    const char *list = kb_config_get(c, property), *p;
    size_t n, count = 0;
    if (list && !*list) return 0;
    while (kb_config_item(&list, &p, &n)) {
        struct kb_listener l;
        if (!parse_listener(p, n, &l) || is_controller_listener(c, l.name) != controller) continue;
        if (count < max) out[count] = l;
        count++;
    }
    return count;
}

size_t kb_config_listeners(const struct kb_config *c, bool advertised, struct kb_listener *out, size_t max) {
    return listeners(c, advertised ? "advertised.listeners" : "listeners", false, out, max);
}

size_t kb_config_controller_listeners(const struct kb_config *c, struct kb_listener *out, size_t max) {
    return listeners(c, "listeners", true, out, max);
}

/* What protocol a listener's name stands for. */
static bool is_plaintext(const struct kb_config *c, struct kw_str name) {
    const char *map = kb_config_get(c, "listener.security.protocol.map"), *p;
    size_t n;
    while (kb_config_item(&map, &p, &n)) {
        const char *colon = memchr(p, ':', n);
        if (!colon || (size_t)(colon - p) != (size_t)name.len || memcmp(p, name.p, (size_t)name.len) != 0) continue;
        return (size_t)(p + n - colon - 1) == 9 && strncasecmp(colon + 1, "PLAINTEXT", 9) == 0;
    }
    return name.len == 9 && strncasecmp(name.p, "PLAINTEXT", 9) == 0;
}

static bool named_before(const char *list, const char *upto, struct kw_str name) {
    const char *p;
    size_t n;
    while (kb_config_item(&list, &p, &n) && p < upto) {
        struct kb_listener l;
        if (parse_listener(p, n, &l) && kw_str_eq(l.name, name)) return true;
    }
    return false;
}

static kw_err check_listeners(const struct kb_config *c, const char *property, char *text, size_t size) {
    const char *value = kb_config_get(c, property), *rest = value, *p;
    size_t n;
    if (!value) return KW_OK;
    while (kb_config_item(&rest, &p, &n)) {
        struct kb_listener l;
        if (!parse_listener(p, n, &l)) {
            kb_config_text(text, size, "%s: \"%.*s\" is not NAME://HOST:PORT with a port from 0 to 65535", property, (int)KW_MIN(n, 200), p);
            return KW_EINVAL;
        }
        if (named_before(value, p, l.name)) {
            kb_config_text(text, size, "%s: %.*s is named twice", property, (int)l.name.len, l.name.p);
            return KW_EINVAL;
        }
        if (!is_controller_listener(c, l.name) && !is_plaintext(c, l.name)) {
            kb_config_text(text, size, "%s: %.*s is not a PLAINTEXT listener; TLS and SASL are not built yet", property, (int)l.name.len,
                           l.name.p);
            return KW_EINVAL;
        }
    }
    return KW_OK;
}

#define LISTENERS_MAX 16

static kw_err check_network(const struct kb_config *c, char *text, size_t size) {
    kw_err err = check_listeners(c, "listeners", text, size);
    if (!err) err = check_listeners(c, "advertised.listeners", text, size);
    if (err) return err;
    struct kb_listener own[LISTENERS_MAX], told[LISTENERS_MAX];
    size_t owned = kb_config_listeners(c, false, own, LISTENERS_MAX);
    size_t advertised = kb_config_listeners(c, true, told, LISTENERS_MAX);
    if (!(kb_config_roles(c) & KB_ROLE_BROKER)) {
        size_t n = kb_config_controller_listeners(c, own, LISTENERS_MAX);
        if (owned == 0 && n > 0 && n <= LISTENERS_MAX) return KW_OK;
        kb_config_text(text, size, "listeners=%s: a node that is a controller alone listens on controller listeners alone (%s://HOST:PORT)",
                       kb_config_get(c, "listeners"), kb_config_get(c, "controller.listener.names"));
        return KW_EINVAL;
    }
    if (owned == 0 || owned > LISTENERS_MAX) {
        kb_config_text(text, size, "listeners=%s: between 1 and %d listeners for clients are needed", kb_config_get(c, "listeners"),
                       LISTENERS_MAX);
        return KW_EINVAL;
    }
    for (size_t i = 0; i < KW_MIN(advertised, (size_t)LISTENERS_MAX); i++) {
        bool known = false;
        for (size_t k = 0; k < owned; k++) known |= kw_str_eq(own[k].name, told[i].name);
        if (!known) {
            kb_config_text(text, size, "advertised.listeners: %.*s is not among the listeners", (int)told[i].name.len, told[i].name.p);
            return KW_EINVAL;
        }
        if (told[i].host.len == 0 || kw_str_eq(told[i].host, kw_str_of("0.0.0.0"))) {
            kb_config_text(text, size, "advertised.listeners: %.*s names no address that a client could connect to", (int)told[i].name.len,
                           told[i].name.p);
            return KW_EINVAL;
        }
    }
    return KW_OK;
}

/* ID@HOST:PORT, or ID@[IPV6]:PORT. */
static bool parse_voter(const char *p, size_t n, struct kb_voter *v) {
    const char *at = memchr(p, '@', n);
    struct kb_listener l;
    char name[280];
    int64_t id = 0;
    if (!at || at == p || at - p > 10) return false;
    for (const char *d = p; d < at; d++) {
        if (*d < '0' || *d > '9') return false;
        id = id * 10 + (*d - '0');
    }
    size_t rest = n - (size_t)(at + 1 - p);
    if (id > INT32_MAX || rest + 5 > sizeof(name)) return false;
    memcpy(name, "v://", 4);
    memcpy(name + 4, at + 1, rest);
    if (!parse_listener(name, rest + 4, &l) || l.host.len == 0 || l.port == 0) return false;
    v->id = (int32_t)id;
    v->host = (struct kw_str){at + 1 + (l.host.p - (name + 4)), l.host.len};
    v->port = l.port;
    return true;
}

size_t kb_config_voters(const struct kb_config *c, struct kb_voter *out, size_t max) {
    const char *list = kb_config_get(c, "controller.quorum.voters"), *p;
    size_t n, count = 0;
    while (kb_config_item(&list, &p, &n)) {
        struct kb_voter v;
        if (!parse_voter(p, n, &v)) continue;
        if (count < max) out[count] = v;
        count++;
    }
    return count;
}

bool kb_config_is_single(const struct kb_config *c) {
    return kb_config_voters(c, NULL, 0) == 0;
}

int kb_config_roles(const struct kb_config *c) {
    const char *roles = kb_config_get(c, "process.roles");
    return (kb_config_list_has(roles, "broker") ? KB_ROLE_BROKER : 0) | (kb_config_list_has(roles, "controller") ? KB_ROLE_CONTROLLER : 0);
}

static kw_err check_voters(const struct kb_config *c, char *text, size_t size) {
    const char *list = kb_config_get(c, "controller.quorum.voters"), *p;
    struct kb_voter v[KB_VOTERS_MAX];
    size_t n, count = 0;
    if (!*list) return KW_OK;
    while (kb_config_item(&list, &p, &n)) {
        if (count == KB_VOTERS_MAX) {
            kb_config_text(text, size, "controller.quorum.voters: at most %d voters", KB_VOTERS_MAX);
            return KW_EINVAL;
        }
        if (!parse_voter(p, n, &v[count])) {
            kb_config_text(text, size, "controller.quorum.voters: \"%.*s\" is not ID@HOST:PORT with a port from 1 to 65535", (int)KW_MIN(n, 200),
                           p);
            return KW_EINVAL;
        }
        for (size_t i = 0; i < count; i++) {
            if (v[i].id != v[count].id) continue;
            kb_config_text(text, size, "controller.quorum.voters: node %d is named twice", (int)v[i].id);
            return KW_EINVAL;
        }
        count++;
    }
    return KW_OK;
}

static kw_err check_quorum(const struct kb_config *c, char *text, size_t size) {
    kw_err err = check_voters(c, text, size);
    if (err) return err;
    struct kb_voter v[KB_VOTERS_MAX];
    size_t n = kb_config_voters(c, v, KB_VOTERS_MAX);
    int roles = kb_config_roles(c), id = (int)kb_config_int(c, "node.id");
    bool among = n == 0;
    for (size_t i = 0; i < n; i++) among = among || v[i].id == id;
    if (!(roles & KB_ROLE_CONTROLLER) && n == 0) {
        kb_config_text(text, size, "process.roles=broker: controller.quorum.voters has to name the controllers (ID@HOST:PORT,...)");
        return KW_EINVAL;
    }
    if ((roles & KB_ROLE_CONTROLLER) && !among) {
        kb_config_text(text, size, "controller.quorum.voters=%.200s: this controller (node.id=%d) is not among them; add it, or take "
                       "controller out of process.roles", kb_config_get(c, "controller.quorum.voters"), id);
        return KW_EINVAL;
    }
    if (!(roles & KB_ROLE_CONTROLLER) && among) {
        kb_config_text(text, size, "controller.quorum.voters: node %d is a broker alone (process.roles=broker) and cannot vote", id);
        return KW_EINVAL;
    }
    return KW_OK;
}

static kw_err check_roles(struct kb_config *c, char *text, size_t size) {
    int64_t old = kb_config_int(c, "broker.id");
    if (kb_config_is_set(c, "broker.id") && old >= 0) {
        if (kb_config_is_set(c, "node.id") && kb_config_int(c, "node.id") != old) {
            kb_config_text(text, size, "node.id=%s and broker.id=%s differ: give node.id alone", kb_config_get(c, "node.id"),
                           kb_config_get(c, "broker.id"));
            return KW_EINVAL;
        }
        kw_err err = kb_config_store(c, kb_config_def("node.id", KB_C_BROKER), kb_config_get(c, "broker.id"));
        if (err) return err;
    }
    return check_quorum(c, text, size);
}

static kw_err check_folder(const struct kb_config *c, char *text, size_t size) {
    const char *dir = kb_config_log_dir(c);
    if (*dir && !strchr(dir, ',')) return KW_OK;
    if (*dir)
        kb_config_text(text, size, "log.dirs=%.200s: several folders are not offered: name one, and run one broker a disk", dir);
    else
        kb_config_text(text, size, "log.dirs: a folder is needed");
    return KW_EINVAL;
}

/* ---- Profiles ---- */

kw_err kb_config_profile(struct kb_config *c, const char *name, char *text, size_t size) {
    if (strcmp(name, "reliable") != 0) {
        kb_config_text(text, size, "unknown profile %.100s: there is one, reliable", name);
        return KW_EINVAL;
    }
    c->reliable = true;
    return KW_OK;
}

static kw_err apply_reliable(struct kb_config *c, char *text, size_t size) {
    static const struct {
        const char *name, *value;
    } set[] = {{"default.replication.factor", "3"}, {"min.insync.replicas", "2"}, {"unclean.leader.election.enable", "false"},
               {"last.known.leader.enable", "false"}};
    for (size_t i = 0; i < KW_COUNTOF(set); i++) {
        if (kb_config_is_set(c, set[i].name)) continue;
        kw_err err = kb_config_store(c, kb_config_def(set[i].name, KB_C_BROKER), set[i].value);
        if (err) return err;
    }
    int64_t rf = kb_config_int(c, "default.replication.factor"), isr = kb_config_int(c, "min.insync.replicas");
    const char *what = rf < 3     ? "default.replication.factor must be at least 3"
                       : isr < 2  ? "min.insync.replicas must be at least 2"
                       : isr > rf ? "min.insync.replicas must not pass default.replication.factor"
                       : kb_config_bool(c, "unclean.leader.election.enable") ? "unclean.leader.election.enable must be false"
                                                                             : NULL;
    if (!what) return KW_OK;
    kb_config_text(text, size, "profile reliable: %s; change the value, or leave the profile out", what);
    return KW_EINVAL;
}

static int64_t retention_ms(const struct kb_config *c) {
    int64_t ms = kb_config_int(c, "log.retention.ms"), minutes = kb_config_int(c, "log.retention.minutes"), hours = kb_config_int(c, "log.retention.hours");
    if (kb_config_is_set(c, "log.retention.ms")) return ms;
    if (kb_config_is_set(c, "log.retention.minutes")) return minutes < 0 ? -1 : minutes * 60000;
    return hours < 0 ? -1 : hours * 3600000;
}

/* As topics are held to when they are made (controller_guid.c). */
static kw_err check_guids(const struct kb_config *c, char *text, size_t size) {
    int64_t window = kb_config_int(c, "log.message.guid.window.ms"), retention = retention_ms(c);
    if (!kb_config_bool(c, "log.message.guid.dedup") || retention < 0 || window <= retention) return KW_OK;
    if (!kb_config_list_has(kb_config_get(c, "log.cleanup.policy"), "delete")) return KW_OK;
    kb_config_text(text, size,
                   "log.message.guid.window.ms=%lld is more than the logs' retention of %lld ms: records would go while their GUIDs have to be "
                   "known; lower the one, or raise the other",
                   (long long)window, (long long)retention);
    return KW_EINVAL;
}

kw_err kb_config_finish(struct kb_config *c, char *text, size_t size) {
    kw_err err = check_roles(c, text, size);
    if (!err) err = check_network(c, text, size);
    if (!err) err = check_folder(c, text, size);
    if (!err) err = check_guids(c, text, size);
    if (!err && c->reliable) err = apply_reliable(c, text, size);
    if (err == KW_ENOMEM) kb_config_text(text, size, "configuration: out of memory");
    return err;
}
