/* fault.h - rules that make this broker misbehave on order: for the nth, every or some of the requests of an API, answer an error, wait,
 * close, stall, drip, corrupt; or have reads, writes and syncs of logs fail. The JSON is described in README.md "Fault rules".
 *
 * Called by dispatch (before an API runs), request (before its answer leaves), node (to load the rules and change them while it runs).
 * Randomness comes from the node.
 */
#ifndef KB_FAULT_H
#define KB_FAULT_H

#include "request.h"

struct kb_faults;
struct kb_faults *kb_faults_new(void); /* no rules; NULL: no memory */
/* Parses {"rules":[…]}, a bare array or one rule, behind those that are there: all, or none with KW_EINVAL: *wrong says which rule, which field, what is
 * wrong and what is meant. *first: the first one's number (may be NULL). */
kw_err kb_faults_add(struct kb_faults *f, const char *json, int32_t *first, struct kb_fault_wrong *wrong) KW_CHECK;
/* Takes a rule away (number 0: all); returns how many. Who was stalled by one goes on as if it had not struck. */
size_t kb_faults_clear(struct kb_faults *f, int32_t number);
char *kb_faults_list(const struct kb_faults *f); /* {"rules":[…]} with number, seen and hits; kw_free; NULL: no memory */
void kb_faults_free(struct kb_faults *f); /* once no request is under way */
uint64_t kb_faults_hits(const struct kb_faults *f); /* of all rules */

/* The shell has carried a disk request out: a rule may have it fail all the same. */
void kb_fault_disk(struct kb_node *n, struct kb_disk_req *r);
bool kb_fault_before(struct kb_request *rq);            /* true: the rule has taken the request over */
bool kb_fault_answer(struct kb_request *rq, void *msg); /* true: the rule sends the answer, or none, in its own time */
bool kb_fault_unanswered(struct kb_request *rq);        /* no answer is due, and the effect is there; true: as above */
/* Not a fault: answers an error, with its text, for all that was asked, in the form of the API (whose answer mirrors its request); rq->body is whole.
 * false: out of memory, nothing was answered. */
bool kb_fault_mirror(struct kb_request *rq, int16_t code, const char *text);
void kb_fault_release(struct kb_request *rq);

#endif
