/* replay_main.c - runs a fuzz target over files and folders without a fuzzer: each input whole, cut short, and with small changes
 * drawn from a fixed seed. Called by ctest with the target's corpus. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGES = 200, CUT_SIZE_MAX = 2048 };

static size_t inputs, runs;

/* A copy of exactly the size, so that a sanitizer sees a read past it. */
static void run(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, p, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    runs++;
}

static void vary(uint8_t *p, size_t n, uint64_t seed) {
    static const uint8_t special[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x0f};
    struct kw_rng rng;
    kw_rng_init(&rng, seed);
    size_t step = n > CUT_SIZE_MAX ? n / CUT_SIZE_MAX : 1;
    for (size_t k = 0; k < n; k += step) run(p, k);
    for (int i = 0; i < CHANGES && n; i++) {
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
    for (int i = 1; i < argc; i++) rc |= replay(argv[i]);
    printf("%zu inputs, %zu runs\n", inputs, runs);
    return rc || inputs == 0; /* an empty corpus tests nothing */
}
