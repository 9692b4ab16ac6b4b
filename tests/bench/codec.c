/* codec - the codecs' own time on what a batch of the load programs' JSON payloads holds: 1 kB records, 1 MB at a time.
 *
 *   codec zstd|lz4 MBYTES < SAMPLE   prints one JSON object with ns_per_kb of compression, at the level that producers default to.
 * Called by run.py; SAMPLE is payloads as loadgen makes them (loadgen -P json), from a topic of the run itself.
 */
#include <lz4frame.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#define BLOCK (1u << 20)
#define BLOCKS 64 /* taken in turn: a producer's batch comes from memory too, not from the cache that the last one warmed */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    long blocks = argc == 3 ? atol(argv[2]) : 0;
    int zstd = argc == 3 && !strcmp(argv[1], "zstd");
    if (blocks <= 0 || (!zstd && strcmp(argv[1], "lz4"))) {
        fprintf(stderr, "usage: codec zstd|lz4 MBYTES < SAMPLE\n");
        return 2;
    }
    size_t capacity = zstd ? ZSTD_compressBound(BLOCK) : LZ4F_compressFrameBound(BLOCK, NULL), out = 0;
    char *in = malloc((size_t)BLOCKS * BLOCK), *to = malloc(capacity);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (!in || !to || !context || fread(in, 1, BLOCK, stdin) != BLOCK) {
        fprintf(stderr, "codec: needs a sample of 1 MB on stdin\n");
        return 1;
    }
    for (size_t i = 1; i < BLOCKS; i++) memcpy(in + i * BLOCK, in, BLOCK);
    uint64_t start = cpu_ns();
    for (long i = 0; i < blocks; i++) {
        const char *from = in + (size_t)i % BLOCKS * BLOCK;
        out = zstd ? ZSTD_compressCCtx(context, to, capacity, from, BLOCK, ZSTD_CLEVEL_DEFAULT)
                   : LZ4F_compressFrame(to, capacity, from, BLOCK, NULL);
        if (zstd ? ZSTD_isError(out) : LZ4F_isError(out)) return 1;
    }
    double ns = (double)(cpu_ns() - start);
    printf("{\"mode\":\"%s\",\"ns_per_kb\":%.1f,\"ratio\":%.2f}\n", argv[1], ns / (double)blocks / 1024, (double)BLOCK / (double)out);
    ZSTD_freeCCtx(context);
    free(in);
    free(to);
    return 0;
}
