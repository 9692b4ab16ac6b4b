/* scan.c - see scan.h. */
#include "scan.h"

#include <stdio.h>
#include <stdlib.h>

#include "kit.h"
#include "wire/batch.h"

static int64_t scan_segment(struct sim_disk *d, const char *path, int64_t next, bool whole) {
    size_t n, at = 0;
    const uint8_t *p = sim_disk_peek(d, path, &n);
    while (p && at < n) {
        struct kw_batch_header h;
        bool sound = kw_batch_parse(p + at, n - at, &h) == KW_OK && (size_t)h.length + KW_BATCH_OVERHEAD <= n - at &&
                     kw_batch_crc_ok(p + at, (size_t)h.length + KW_BATCH_OVERHEAD);
        if (!sound && !whole) return next;
        FUZZ_CHECK(sound, "%s: no sound batch at byte %zu of %zu", path, at, n);
        FUZZ_CHECK(h.base_offset >= next && h.last_offset_delta >= 0, "%s: offset %lld at byte %zu, %lld and above may be there", path,
                   (long long)h.base_offset, at, (long long)next);
        next = h.base_offset + h.last_offset_delta + 1;
        at += (size_t)h.length + KW_BATCH_OVERHEAD;
    }
    return next;
}

void fuzz_scan_folder(struct sim_disk *d, const char *dir, bool whole) {
    char **names, path[400];
    size_t count = sim_disk_names(d, dir, &names);
    int64_t next = 0;
    for (size_t i = 0; i < count; i++) { /* sorted, and so by base offset */
        if (strlen(names[i]) == 24 && strcmp(names[i] + 20, ".log") == 0) {
            int64_t base = strtoll(names[i], NULL, 10);
            FUZZ_CHECK(base >= next, "%s/%s begins below offset %lld", dir, names[i], (long long)next);
            snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            next = scan_segment(d, path, base, whole);
        }
        free(names[i]);
    }
    free(names);
}

void fuzz_scan_all(struct sim_disk *d, const char *dir, bool whole) {
    char **names, path[400];
    size_t count = sim_disk_names(d, dir, &names);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (strchr(names[i], '-')) fuzz_scan_folder(d, path, whole);
        free(names[i]);
    }
    free(names);
}
