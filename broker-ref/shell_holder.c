/* shell_holder.c - who has a port that is taken, as far as /proc tells: for the message that says so. Contract: shell_command.h. */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shell_command.h"

enum { LISTENS = 10, COMMAND_MAX = 100 };

struct holder {
    char address[INET6_ADDRSTRLEN];
    unsigned long inode;
    unsigned uid;
};

/* An address as /proc/net/tcp has it: 32 bits at a time, as this machine has them in memory. */
static bool parse_address(const char *hex, struct in6_addr *a, int *family) {
    size_t words = strlen(hex) / 8;
    if (words != 1 && words != 4) return false;
    for (size_t i = 0; i < words; i++) {
        char word[9];
        snprintf(word, sizeof(word), "%.8s", hex + 8 * i);
        uint32_t v = (uint32_t)strtoul(word, NULL, 16);
        memcpy((char *)a + 4 * i, &v, sizeof(v));
    }
    *family = words == 1 ? AF_INET : AF_INET6;
    return true;
}

static bool is_any(const struct in6_addr *a, int family) {
    static const struct in6_addr zero;
    return memcmp(a, &zero, family == AF_INET ? 4 : 16) == 0;
}

/* Do they want the same port for themselves? One for any address is against all; IPv6's, as good as always, against IPv4's, too. */
static bool collide(const struct sockaddr *wanted, const struct in6_addr *has, int family) {
    const void *w = wanted->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)(const void *)wanted)->sin_addr
                                                 : (const void *)&((const struct sockaddr_in6 *)(const void *)wanted)->sin6_addr;
    struct in6_addr mine = {0};
    memcpy(&mine, w, wanted->sa_family == AF_INET ? 4 : 16);
    if (is_any(has, family) || is_any(&mine, wanted->sa_family)) return true;
    return wanted->sa_family == family && memcmp(&mine, has, family == AF_INET ? 4 : 16) == 0;
}

static bool find_in(const char *table, const struct sockaddr *wanted, uint16_t port, struct holder *h) {
    FILE *f = fopen(table, "re");
    char line[512], address[40];
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f)) {
        unsigned at, state;
        struct in6_addr a = {0};
        int family;
        if (sscanf(line, " %*[^:]: %39[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u %*s %lu", address, &at, &state, &h->uid, &h->inode) != 5) continue;
        if (at != port || state != LISTENS || !parse_address(address, &a, &family) || !collide(wanted, &a, family)) continue;
        found = inet_ntop(family, &a, h->address, sizeof(h->address)) != NULL;
    }
    if (f) fclose(f);
    return found;
}

static bool has_socket(const char *pid, unsigned long inode) {
    char path[64], link[64], wanted[64];
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        found = strcmp(link, wanted) == 0;
    }
    if (dir) closedir(dir);
    return found;
}

/* Its command line, cut where it gets long. */
static void command_of(const char *pid, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    for (ssize_t i = 0; i < n - 1; i++)
        if (!isprint((unsigned char)text[i])) text[i] = ' ';
    if (n == (ssize_t)size - 1) memcpy(text + n - 3, "...", 3);
}

bool kb_command_port_holder(const struct sockaddr *wanted, uint16_t port, char *text, size_t size) {
    struct holder h;
    char command[COMMAND_MAX + 1];
    if (!find_in("/proc/net/tcp", wanted, port, &h) && !find_in("/proc/net/tcp6", wanted, port, &h)) return false;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!isdigit((unsigned char)e->d_name[0]) || !has_socket(e->d_name, h.inode)) continue;
        command_of(e->d_name, command, sizeof(command));
        snprintf(text, size, "process %.20s (%s) listens at %s port %u", e->d_name, command, h.address, port);
        closedir(dir);
        return true;
    }
    if (dir) closedir(dir);
    snprintf(text, size, "a process of user %u listens at %s port %u", h.uid, h.address, port);
    return true;
}
