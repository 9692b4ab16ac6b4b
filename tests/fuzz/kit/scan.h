/* scan.h - what may be said of a partition's segments on the simulated disk, whatever led to them. Used by the broker's targets. */
#ifndef FUZZ_SCAN_H
#define FUZZ_SCAN_H

#include "sim_disk.h"

/* Every .log of every folder below `dir`: batches whole, each with its checksum, offsets rising within and across segments. With `whole`
 * nothing may stand behind the last one; else that is where a crash cut it. */
void fuzz_scan_all(struct sim_disk *d, const char *dir, bool whole);
void fuzz_scan_folder(struct sim_disk *d, const char *dir, bool whole);

#endif
