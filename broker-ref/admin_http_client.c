/* admin_http_client.c - contract: admin_http_client.h. HTTP/1.0: the answer ends with the connection. */
#include "admin_http_client.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin_http_server.h"
#include "shell_command.h"

enum { ANSWER_MAX = 8 << 20, READ_SIZE = 1 << 16 };

char *kb_http_request_text(const char *method, const char *path, const char *body, size_t *size) {
    char *text = NULL;
    int n = asprintf(&text, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
    if (n < 0) return NULL;
    *size = (size_t)n;
    return text;
}

char *kb_http_answer_body(char *answer, int *status) {
    char *end = strstr(answer, "\r\n\r\n"), *newline = strrchr(answer, '\n');
    if (newline && end && newline > end + 3 && !newline[1]) *newline = 0;
    return end && sscanf(answer, "HTTP/1.%*d %d", status) == 1 ? end + 4 : NULL;
}

char *kb_http_error_text(const char *json) {
    json_t *root = json_loads(json, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "error"));
    char *copy = strdup(text ? text : json);
    json_decref(root);
    return copy;
}

static int connect_to(const char *dir, int wait_s) {
    struct sockaddr_un at;
    struct timeval wait = {.tv_sec = wait_s};
    int dir_fd = kb_command_socket_address(dir, KB_ADMIN_SOCKET, &at), fd = dir_fd < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) == 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    int err = errno;
    if (dir_fd >= 0) close(dir_fd);
    if (!ok && fd >= 0) close(fd);
    errno = err;
    return ok ? fd : -1;
}

static bool send_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Until the connection ends. */
static char *read_all(int fd) {
    char *p = NULL;
    size_t n = 0;
    for (;;) {
        char *more = n > ANSWER_MAX ? NULL : realloc(p, n + READ_SIZE + 1);
        ssize_t got = -1;
        if (more) {
            p = more;
            got = read(fd, p + n, READ_SIZE);
        } else {
            errno = ENOMEM;
        }
        if (got < 0 && more && errno == EINTR) continue;
        if (got < 0) {
            free(p);
            return NULL;
        }
        n += (size_t)got;
        p[n] = 0;
        if (got == 0) return p;
    }
}

char *kb_http_ask(const char *dir, const char *method, const char *path, const char *body, int wait_s, int *status) {
    size_t size = 0;
    char *request = kb_http_request_text(method, path, body, &size), *all = NULL, *answer = NULL;
    int fd = request ? connect_to(dir, wait_s) : -1;
    if (fd >= 0 && send_all(fd, request, size)) all = read_all(fd);
    int err = errno;
    const char *found = all ? kb_http_answer_body(all, status) : NULL;
    if (all && !found) err = ECONNRESET; /* it ended in the middle */
    if (found) answer = strdup(found);
    if (fd >= 0) close(fd);
    free(request);
    free(all);
    errno = err;
    return answer;
}
