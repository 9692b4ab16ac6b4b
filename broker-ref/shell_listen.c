/* shell_listen.c - a listening TCP socket on an address: of the listeners (shell_net) and of the admin port (admin_http). */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shell_command.h"
#include "shell_parts.h"

static int bind_one(const struct addrinfo *a, int backlog, uint16_t *got) {
    int on = 1, off = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    struct sockaddr_storage here;
    socklen_t len = sizeof(here);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, backlog) != 0 || getsockname(fd, (struct sockaddr *)&here, &len) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    *got = ntohs(here.ss_family == AF_INET ? ((struct sockaddr_in *)&here)->sin_port : ((struct sockaddr_in6 *)&here)->sin6_port);
    return fd;
}

int kb_shell_listen(const char *host, uint16_t port, int backlog, uint16_t *got, char *why, size_t size) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    int err = getaddrinfo(host[0] ? host : "::", service, &hints, &found);
    if (err != 0) {
        snprintf(why, size, "%s; is the host's name right?", gai_strerror(err));
        errno = 0;
        return -1;
    }
    int fd = -1, bound = 0;
    char holder[300] = "";
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = bind_one(a, backlog, got);
        bound = errno;
        if (fd < 0 && bound == EADDRINUSE) (void)!kb_command_port_holder(a->ai_addr, port, holder, sizeof(holder));
    }
    freeaddrinfo(found);
    if (fd < 0 && !host[0]) return kb_shell_listen("0.0.0.0", port, backlog, got, why, size); /* a machine without IPv6 */
    if (fd < 0) {
        snprintf(why, size, "%s%s%s", strerror(bound), holder[0] ? ": " : "", holder);
        errno = bound;
    }
    return fd;
}
