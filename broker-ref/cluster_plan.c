/* cluster_plan.c - which nodes a cluster has, on which ports: made from the command line once, then kept in DIR/cluster.json.
 *
 * Called by cluster, cluster_command, admin_http_ask (which nodes a folder has). Calls jansson.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"

enum { PORT_LOW = 10000, PORT_EPHEMERAL = 32768, PORT_MAX = 65535, HELD_MAX = 4 * KB_CLUSTER_NODES_MAX };

struct kb_cluster_node *kb_cluster_plan_find(struct kb_cluster_plan *p, int32_t id) {
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].id == id) return &p->nodes[i];
    return NULL;
}

const char *kb_cluster_roles(const struct kb_cluster_node *n) {
    return n->broker && n->controller ? "broker,controller" : n->broker ? "broker" : "controller";
}

static bool taken(const struct kb_cluster_plan *p, uint16_t port) {
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].port == port) return true;
    return false;
}

/* ---- Ports that are ours: bound, and not listened on, for as long as this process lives ---- */

/* A node binds such a port all the same (SO_REUSEADDR on both), whenever it starts; nobody else is given it meanwhile, be it another cluster that looks
 * for free ones at the same moment, or the kernel for an outgoing connection. */
static struct {
    uint16_t port;
    int fd;
} held[HELD_MAX];
static size_t held_count;

static bool is_held(uint16_t port) {
    for (size_t i = 0; i < held_count; i++)
        if (held[i].port == port) return true;
    return false;
}

/* alone: nobody else may have it for himself, or hold it. port 0: any. The port; 0: it cannot be had. */
static uint16_t hold(uint16_t port, bool alone) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    socklen_t n = sizeof(a);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    bool ok = (alone || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0) && bind(fd, (struct sockaddr *)&a, n) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0;
    if (ok && held_count < HELD_MAX) {
        held[held_count].port = ntohs(a.sin_port);
        held[held_count++].fd = fd;
    } else {
        close(fd);
    }
    return ok ? ntohs(a.sin_port) : 0;
}

void kb_cluster_plan_hold(const struct kb_cluster_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (!is_held(p->nodes[i].port)) (void)hold(p->nodes[i].port, false); /* who has it will be told by the node */
}

/* None of those that the kernel gives to outgoing connections, unless the machine has no other. */
static uint16_t free_port(const struct kb_cluster_plan *p) {
    for (int tries = 0; tries < 100; tries++) {
        uint16_t drawn = 0;
        bool low = tries < 90 && getrandom(&drawn, sizeof(drawn), 0) == sizeof(drawn);
        uint16_t port = hold(low ? (uint16_t)(PORT_LOW + drawn % (PORT_EPHEMERAL - PORT_LOW)) : 0, true);
        if (port != 0 && !taken(p, port)) return port;
    }
    return 0;
}

int kb_cluster_plan_port(const struct kb_cluster_plan *p, struct kb_cluster_node *n, int wanted, bool strict, char *text, size_t size) {
    uint16_t port = 0;
    bool good = wanted > 0 && wanted <= PORT_MAX && !taken(p, (uint16_t)wanted) && (strict || is_held((uint16_t)wanted) || hold((uint16_t)wanted, false) != 0);
    if (good) port = (uint16_t)wanted;
    if (!good && !strict) port = free_port(p);
    n->port = port;
    if (port != 0) return 0;
    snprintf(text, size, "no port is left for node %d: choose a lower --base-port", n->id);
    return -1;
}

static int add(struct kb_cluster_plan *p, struct kb_cluster_node n, int port, bool strict, char *text, size_t size) {
    if (p->count == KB_CLUSTER_NODES_MAX) {
        snprintf(text, size, "a cluster has at most %d nodes", KB_CLUSTER_NODES_MAX);
        return -1;
    }
    if (kb_cluster_plan_port(p, &n, port, strict, text, size) != 0) return -1;
    p->nodes[p->count++] = n;
    return 0;
}

int kb_cluster_plan_make(struct kb_cluster_plan *p, int nodes, int controllers, int base_port, char *text, size_t size) {
    int voters = nodes <= 2 ? 1 : nodes <= 4 ? 3 : 5;
    p->count = 0;
    for (int i = 0; i < nodes; i++) {
        struct kb_cluster_node n = {.id = i, .broker = true, .controller = controllers == 0 && i < voters};
        if (add(p, n, base_port ? base_port + i : 0, base_port > 0, text, size) != 0) return -1;
    }
    for (int i = 0; i < controllers; i++) {
        struct kb_cluster_node n = {.id = KB_CLUSTER_FIRST_CONTROLLER + i, .controller = true};
        if (add(p, n, base_port ? base_port + nodes + i : 0, base_port > 0, text, size) != 0) return -1;
    }
    return 0;
}

int kb_cluster_plan_add(struct kb_cluster_plan *p, int32_t id, char *text, size_t size) {
    int highest = 0;
    if (kb_cluster_plan_find(p, id)) {
        snprintf(text, size, "node %d exists: start-node %d starts it", id, id);
        return -1;
    }
    int brokers = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (p->nodes[i].port > highest) highest = p->nodes[i].port;
        brokers += p->nodes[i].broker;
    }
    if (brokers == KB_CLUSTER_BROKERS_MAX) {
        snprintf(text, size, "a cluster has at most %d brokers here", KB_CLUSTER_BROKERS_MAX);
        return -1;
    }
    return add(p, (struct kb_cluster_node){.id = id, .broker = true}, highest + 1, false, text, size);
}

char *kb_cluster_plan_voters(const struct kb_cluster_plan *p) {
    char *s = malloc(p->count * 40 + 1), *at = s;
    if (!s) return NULL;
    *s = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].controller) at += sprintf(at, "%s%d@127.0.0.1:%u", at == s ? "" : ",", p->nodes[i].id, p->nodes[i].port);
    return s;
}

/* ---- The file ---- */

static int take(struct kb_cluster_plan *p, const json_t *v) {
    const json_t *id = json_object_get(v, "id"), *port = json_object_get(v, "port");
    const char *roles = json_string_value(json_object_get(v, "roles"));
    if (!json_is_integer(id) || !json_is_integer(port) || !roles || p->count == KB_CLUSTER_NODES_MAX) return -1;
    if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX || json_integer_value(port) < 1 || json_integer_value(port) > PORT_MAX)
        return -1;
    struct kb_cluster_node n = {.id = (int32_t)json_integer_value(id),
                                .port = (uint16_t)json_integer_value(port),
                                .broker = strstr(roles, "broker") != NULL,
                                .controller = strstr(roles, "controller") != NULL};
    if (kb_cluster_plan_find(p, n.id) || taken(p, n.port) || (!n.broker && !n.controller)) return -1;
    p->nodes[p->count++] = n;
    return 0;
}

int kb_cluster_plan_read(struct kb_cluster_plan *p, const char *dir, char *text, size_t size) {
    char path[4200];
    json_error_t e;
    snprintf(path, sizeof(path), "%s/cluster.json", dir);
    p->count = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return 0;
    json_t *root = json_load_file(path, 0, &e);
    const json_t *nodes = json_object_get(root, "nodes");
    int err = json_is_array(nodes) && json_array_size(nodes) > 0 ? 0 : -1;
    for (size_t i = 0; err == 0 && i < json_array_size(nodes); i++) err = take(p, json_array_get(nodes, i));
    json_decref(root);
    if (err == 0) return 1;
    snprintf(text, size, "%.3000s does not say which nodes there are (%s): mend it, or choose another folder with --data DIR", path,
             root ? "ids, ports or roles" : e.text);
    return -1;
}

int kb_cluster_plan_write(const struct kb_cluster_plan *p, const char *dir, char *text, size_t size) {
    char path[4200], temporary[4210];
    json_t *nodes = json_array();
    for (size_t i = 0; i < p->count; i++) {
        const struct kb_cluster_node *n = &p->nodes[i];
        json_array_append_new(nodes, json_pack("{s:i, s:s, s:i}", "id", (int)n->id, "roles", kb_cluster_roles(n), "port", (int)n->port));
    }
    json_t *root = json_pack("{s:o}", "nodes", nodes);
    snprintf(path, sizeof(path), "%s/cluster.json", dir);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    bool ok = root && json_dump_file(root, temporary, JSON_INDENT(1)) == 0 && rename(temporary, path) == 0;
    if (!ok) snprintf(text, size, "%.3000s cannot be written: %s", path, strerror(errno));
    json_decref(root);
    return ok ? 0 : -1;
}
