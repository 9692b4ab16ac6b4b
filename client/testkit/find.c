/* find.c - where the program kbroker is: as the test says, in KBROKER, beside this library, beside the program, on PATH. Called by cluster.c. */
#include "testkit.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct search {
    char *found;
    char places[1200]; /* that were looked at */
    size_t size;
};

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static void look(struct search *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void look(struct search *s, const char *fmt, ...) {
    char path[PATH_MAX];
    va_list ap;
    if (s->found) return;
    va_start(ap, fmt);
    int n = vsnprintf(path, sizeof path, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof path) return;
    if (is_program(path)) {
        s->found = strdup(path);
        return;
    }
    int said = snprintf(s->places + s->size, sizeof s->places - s->size, "%s%s", s->size ? ", " : "", path);
    if (said > 0) s->size = s->size + (size_t)said < sizeof s->places ? s->size + (size_t)said : sizeof s->places - 1;
}

/* file: a library or a program, with its path. A library lies in PREFIX/lib or PREFIX/lib/TRIPLET, a program of the build tree beside bin. */
static void look_beside(struct search *s, const char *file) {
    char real[PATH_MAX], *slash;
    if (!realpath(file, real) || !(slash = strrchr(real, '/'))) return;
    *slash = 0;
    look(s, "%s/kbroker", real);
    for (int up = 0; up < 2 && (slash = strrchr(real, '/')) && slash != real; up++) {
        *slash = 0;
        look(s, "%s/bin/kbroker", real);
    }
}

static void look_on_path(struct search *s, const char *name) {
    const char *path = getenv("PATH");
    for (const char *end; path && !s->found; path = *end ? end + 1 : NULL) {
        end = strchrnul(path, ':');
        if (end > path) look(s, "%.*s/%s", (int)(end - path), path, name);
    }
}

char *kt_find_kbroker(const char *asked, kc_error **error) {
    struct search s = {.found = NULL};
    const char *named = asked ? asked : getenv("KBROKER");
    if (named && *named) { /* who names it means that one */
        if (strchr(named, '/')) look(&s, "%s", named);
        else look_on_path(&s, named);
        if (!s.found)
            kt_fail(error, KC_INVALID, "%s%s is no program that can be run; looked at %s", asked ? "kbroker: " : "KBROKER=", named, s.places);
        return s.found;
    }
    Dl_info self;
    if (dladdr((void *)(uintptr_t)&kt_find_kbroker, &self) && self.dli_fname) look_beside(&s, self.dli_fname);
    look_beside(&s, "/proc/self/exe");
    look_on_path(&s, "kbroker");
    if (!s.found)
        kt_fail(error, KC_INVALID, "the program kbroker is not found: name it in the options or in the environment's KBROKER; looked at %s", s.places);
    return s.found;
}
