/* shell_command.c - contract: shell_command.h. */
#include "shell_command.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/nearest.h"

/* ---- Words ---- */

int kb_command_wrong(const char *command, const char *near, const char *fmt, ...) {
    va_list ap;
    fprintf(stderr, "kbroker: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\nTry: kbroker %s --help\n", command);
    return 2;
}

const char *kb_command_nearest(const char *word, const char *const *words, size_t n) {
    struct kw_nearest near;
    kw_nearest_init(&near, word);
    for (size_t i = 0; i < n; i++) kw_nearest_offer(&near, words[i]);
    return near.best;
}

bool kb_command_asks_help(int argc, char **argv) {
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

const char *kb_command_value(const char *name, int argc, char **argv, int *i) {
    size_t n = strlen(name);
    const char *arg = argv[*i];
    if (strncmp(arg, name, n) != 0 || (arg[n] && arg[n] != '=')) return NULL;
    if (arg[n]) return arg + n + 1;
    return *i + 1 < argc ? argv[++*i] : "";
}

size_t kb_command_ids(const char *list, int32_t *ids, size_t max) {
    size_t count = 0;
    for (const char *p = list;; p++) {
        int64_t id = 0;
        if (*p < '0' || *p > '9' || count == max) return 0;
        for (; *p >= '0' && *p <= '9'; p++) {
            id = id * 10 + (*p - '0');
            if (id > INT32_MAX) return 0;
        }
        ids[count++] = (int32_t)id;
        if (!*p) return count;
        if (*p != ',') return 0;
    }
}

/* ---- Folders ---- */

int kb_command_make_folder(const char *dir) {
    char path[4096];
    size_t n = strlen(dir);
    if (n == 0 || n >= sizeof(path)) return ENAMETOOLONG;
    memcpy(path, dir, n + 1);
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (mkdir(path, 0755) != 0 && errno != EEXIST) return errno;
        *p = '/';
    }
    return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : errno;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int kb_command_remove_tree(const char *dir) {
    return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int kb_command_socket_address(const char *dir, const char *name, struct sockaddr_un *a) {
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (fd >= 0) snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s", fd, name);
    return fd;
}
