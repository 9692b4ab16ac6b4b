/* replay_main.c - runs a fuzz target over files and folders without a fuzzer: each input whole, cut short, and with small changes
 * drawn from a fixed seed. Called by ctest with the target's corpus. FUZZ_SAVE=FILE in the environment: the input that aborts goes there. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef FUZZ_CHANGES
#define FUZZ_CHANGES 200 /* random ones of each input */
#endif
#ifndef FUZZ_CUTS
#define FUZZ_CUTS 2048 /* places, at most, where each input is cut short */
#endif

static size_t inputs, runs;
static const uint8_t *running; /* the input under way */
static size_t running_size;

static void save(int sig) {
    const char *path = getenv("FUZZ_SAVE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd >= 0 && write(fd, running, running_size) != (ssize_t)running_size) _exit(1);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* A copy of exactly the size, so that a sanitizer sees a read past it. */
static void run(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, p, n);
    running = copy;
    running_size = n;
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    runs++;
}

static void vary(uint8_t *p, size_t n, uint64_t seed) {
    static const uint8_t special[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x0f};
    struct kw_rng rng;
    kw_rng_init(&rng, seed);
    size_t step = n > FUZZ_CUTS ? n / FUZZ_CUTS : 1;
    for (size_t k = 0; k < n; k += step) run(p, k);
    for (int i = 0; i < FUZZ_CHANGES && n; i++) {
        uint8_t saved[4];
        size_t at[4], count = 1 + kw_rng_below(&rng, 4);
        for (size_t k = 0; k < count; k++) {
            at[k] = kw_rng_below(&rng, n);
            saved[k] = p[at[k]];
            p[at[k]] = kw_rng_below(&rng, 2) ? special[kw_rng_below(&rng, sizeof special)] : (uint8_t)kw_rng_next(&rng);
        }
        run(p, n);
        while (count-- > 0) p[at[count]] = saved[count];
    }
}

static int replay(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return perror(path), 1;
    if (S_ISDIR(st.st_mode)) {
        struct dirent **names;
        int n = scandir(path, &names, NULL, alphasort), rc = 0;
        if (n < 0) return perror(path), 1;
        for (int i = 0; i < n; i++) {
            char sub[4096];
            snprintf(sub, sizeof sub, "%s/%s", path, names[i]->d_name);
            if (names[i]->d_name[0] != '.') rc |= replay(sub);
            free(names[i]);
        }
        free(names);
        return rc;
    }
    FILE *f = fopen(path, "rb");
    size_t n = (size_t)st.st_size;
    uint8_t *p = malloc(n ? n : 1);
    if (!f || !p || fread(p, 1, n, f) != n) return fprintf(stderr, "%s: cannot read\n", path), 1;
    fclose(f);
    run(p, n);
    vary(p, n, ++inputs);
    free(p);
    return 0;
}

int main(int argc, char **argv) {
    int rc = 0;
    signal(SIGABRT, save);
    signal(SIGSEGV, save);
    for (int i = 1; i < argc; i++) rc |= replay(argv[i]);
    printf("%zu inputs, %zu runs\n", inputs, runs);
    return rc || inputs == 0; /* an empty corpus tests nothing */
}
