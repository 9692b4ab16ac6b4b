/* admin_http_client.h - one request over the admin socket of a folder, as the commands make it; and what an answer looks like on the wire.
 *
 * Called by admin_http_ask, cluster_ask, snapshot commands; cluster_relay, which asks without waiting, takes the format from here.
 */
#ifndef KB_ADMIN_HTTP_CLIENT_H
#define KB_ADMIN_HTTP_CLIENT_H

#include <stddef.h>

/* The answer's body, free(); *status is its HTTP status. NULL: nobody answered, errno says why (EAGAIN: not within wait_s seconds). */
char *kb_http_ask(const char *dir, const char *method, const char *path, const char *body, int wait_s, int *status);
/* The same request as bytes. free(); NULL: no memory. */
char *kb_http_request_text(const char *method, const char *path, const char *body, size_t *size);
/* Where the body begins in a whole answer (of a connection that has ended), zero-terminated, its newline taken away; NULL: it is none. */
char *kb_http_answer_body(char *answer, int *status);
/* {"error":"text"} → the text, free(); anything else as it is. */
char *kb_http_error_text(const char *json);

#endif
