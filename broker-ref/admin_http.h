/* admin_http.h - the admin port: HTTP with JSON, on DIR/.admin.sock always and on admin.listener when it is set; and `kbroker fault`.
 *
 * GET /status tells what the node is and what it has counted (README.md, "Admin port"). GET /faults lists the fault rules, POST /faults adds the
 * ones in the body, DELETE /faults takes all away, DELETE /faults?rule=N one. GET /clock tells the time, POST /clock {"advance_ms": N} moves it
 * on where it is virtual (--clock virtual).
 * Called by main.c. admin_http.c serves (over admin_http_server), admin_http_ask.c asks (over admin_http_client).
 */
#ifndef KB_ADMIN_HTTP_H
#define KB_ADMIN_HTTP_H

#include "shell_parts.h"

struct kb_admin;
struct kb_http_request;
/* dir: the data folder; lives as long. address: HOST:PORT or NULL. 0, or -1 with what is wrong and what to do in text. */
int kb_admin_new(struct kb_shell *s, const char *dir, const char *address, struct kb_admin **a, char *text, size_t size);
void kb_admin_free(struct kb_admin *a); /* before the node; its handles close in the loop */

void kb_admin_clock(struct kb_shell *s, struct kb_http_request *r); /* admin_http_clock.c: /clock */

/* `kbroker fault …`. The exit code. */
int kb_admin_ask_main(int argc, char **argv);

#endif
