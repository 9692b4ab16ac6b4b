/* admin_http_clock.c - /clock of a node's admin port: what its clock says, and by how much a virtual one is advanced.
 *
 * Called by admin_http. Calls shell_clock, and main.c's kb_shell_turn: what is due by then has happened, or is under way, before the answer goes out.
 */
#include <jansson.h>
#include <stdio.h>

#include "admin_http.h"
#include "admin_http_server.h"

static void tell(struct kb_http_request *r) {
    char out[120];
    snprintf(out, sizeof(out), "{\"clock\":\"%s\",\"wall_ms\":%lld,\"advanced_ms\":%lld}", kb_shell_clock_is_virtual() ? "virtual" : "real",
             (long long)kb_shell_now().wall_ms, (long long)kb_shell_clock_ahead_ms());
    kb_http_answer(r, KB_HTTP_OK, out);
}

static void advance(struct kb_shell *s, struct kb_http_request *r, json_t *body) {
    const json_t *ms = json_object_get(body, "advance_ms");
    const char *name;
    json_t *value;
    if (!json_is_object(body)) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "POST /clock wants an object such as {\"advance_ms\": 60000}");
        return;
    }
    json_object_foreach(body, name, value) if (value != ms) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "unknown field \"%s\": POST /clock knows \"advance_ms\" alone", name);
        return;
    }
    if (!json_is_integer(ms)) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"advance_ms\" wants a whole number of milliseconds");
    } else if (json_integer_value(ms) < 0) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"advance_ms\" is negative, and time goes forward only");
    } else if (kb_shell_clock_advance(s, json_integer_value(ms)) != KW_OK) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"advance_ms\" goes more than a hundred years ahead (all advances together)");
    } else {
        kb_shell_turn(s);
        tell(r);
    }
}

void kb_admin_clock(struct kb_shell *s, struct kb_http_request *r) {
    json_error_t at;
    if (kb_http_is(r, "GET")) {
        tell(r);
        return;
    }
    if (!kb_http_is(r, "POST")) {
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET tells what the clock says, POST {\"advance_ms\": N} advances it");
        return;
    }
    if (!kb_shell_clock_is_virtual()) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "this node's clock is real and cannot be advanced: start it with --clock virtual");
        return;
    }
    json_t *body = json_loads(kb_http_body(r), JSON_REJECT_DUPLICATES, &at);
    if (!body) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "the body is not JSON: %s", at.text);
        return;
    }
    advance(s, r, body);
    json_decref(body);
}
