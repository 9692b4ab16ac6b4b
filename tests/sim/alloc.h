/* alloc.h - the products' memory in the simulator: counted, so that leaks show, and refused now and then while a host has its turn.
 *
 * Called by main.c (set up, leaks), world.c (whose turn it is), faults.c (when to refuse). Calls base's allocator hook.
 */
#ifndef SIM_ALLOC_H
#define SIM_ALLOC_H

#include "world.h"

void sim_alloc_init(void);
size_t sim_alloc_blocks(void);                 /* not freed */
/* Whose calls come from now on; NULL: the simulator's own, which never fail. Returns whose they were. */
struct sim_host *sim_alloc_turn(struct sim_host *h);
void sim_alloc_refuse(struct sim_host *h, uint64_t after, uint32_t times); /* so many calls from now, so many in a row */
void sim_alloc_heal(struct sim_host *h);

#endif
