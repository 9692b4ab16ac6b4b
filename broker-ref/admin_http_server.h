/* admin_http_server.h - HTTP with JSON on the caller's own loop: libmicrohttpd without a thread, run when its descriptor is readable.
 *
 * Called by admin_http (a node's admin port) and cluster_http (the cluster's), which say what is served. Calls libmicrohttpd, shell_listen.
 * Everything in the loop's thread.
 */
#ifndef KB_ADMIN_HTTP_SERVER_H
#define KB_ADMIN_HTTP_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#define KB_ADMIN_SOCKET ".admin.sock"

enum {
    KB_HTTP_OK = 200,
    KB_HTTP_BAD_REQUEST = 400,
    KB_HTTP_FORBIDDEN = 403,
    KB_HTTP_NOT_FOUND = 404,
    KB_HTTP_NOT_ALLOWED = 405,
    KB_HTTP_CONFLICT = 409,
    KB_HTTP_TOO_LARGE = 413,
    KB_HTTP_FAILED = 500
};

struct kb_http;
struct kb_http_request;
struct kb_http_options {
    uv_loop_t *loop;
    void (*handle)(void *ctx, struct kb_http_request *r); /* a whole request: to be answered once, now or later */
    void (*after)(void *ctx);                             /* some were handled; NULL: nothing is to be done then */
    void *ctx;
};

struct kb_http *kb_http_new(const struct kb_http_options *o); /* NULL: no memory */
/* DIR/.admin.sock, for its owner alone; one that was left there goes. -1: errno. */
int kb_http_listen_unix(struct kb_http *h, const char *dir);
/* address: HOST:PORT, port 0: a free one. url: of size bytes, where it is. -1, with why. */
int kb_http_listen_tcp(struct kb_http *h, const char *address, char *url, size_t url_size, char *why, size_t why_size);
void kb_http_free(struct kb_http *h); /* what is not answered yet never is; the memory goes once the loop has closed the handles. NULL: nothing */

/* Of a request; good until it is answered. */
bool kb_http_is(const struct kb_http_request *r, const char *method);
const char *kb_http_path(const struct kb_http_request *r);
const char *kb_http_query(const struct kb_http_request *r, const char *name); /* ?name=…; NULL: there is none. Only within handle */
const char *kb_http_body(const struct kb_http_request *r);                    /* "" without one */

/* A string of JSON, whatever the bytes are: a path need not be UTF-8. NULL: no memory. */
json_t *kb_http_json_text(const char *text);

/* The one answer; the request is gone after it. */
void kb_http_answer(struct kb_http_request *r, int status, const char *json);
void kb_http_refuse(struct kb_http_request *r, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4))); /* {"error": …} */

#endif
