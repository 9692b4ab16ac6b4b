/* manifest.h - guid/manifest in a log's folder: which runs there are, up to where each counts, and the key of the hashes. Whatever it does not name is
 * not there. Written as a whole; durable before the log is cut below what it says.
 *
 * Called by index and its opening job. Pure. Big-endian: "KBGUIDM1", key (16), next number, end, its leader epoch, how many, then of each run: number,
 * base, valid_to, epoch; CRC-32C of all.
 */
#ifndef KB_GUID_MANIFEST_H
#define KB_GUID_MANIFEST_H

#include "base/buf.h"

#define KB_MANIFEST_RUNS_MAX 128

struct kb_manifest_run {
    uint64_t seq;
    int64_t base, valid_to; /* nothing from valid_to on counts */
    int32_t epoch;          /* leader epoch of the log's record at valid_to - 1; -1: unknown */
};
struct kb_manifest {
    uint64_t key[2], next_seq;
    int64_t end;       /* all below was looked at, at least */
    int32_t end_epoch; /* leader epoch at end - 1 */
    size_t count;
    struct kb_manifest_run runs[KB_MANIFEST_RUNS_MAX];
};
enum { KB_MANIFEST_SIZE_MAX = 48 + 28 * KB_MANIFEST_RUNS_MAX + 4 };

kw_err kb_manifest_encode(const struct kb_manifest *m, struct kw_out *out) KW_CHECK;
/* KW_EDECODE, KW_ECRC. Of what is decoded the numbers are below next_seq and different, the ranges ascend, and end is not below them. */
kw_err kb_manifest_decode(struct kb_manifest *m, const uint8_t *p, size_t n) KW_CHECK;

#endif
