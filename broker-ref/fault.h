/* fault.h - rules that make this broker misbehave on order: for the nth, every or some of the requests of an API, answer an error, wait,
 * close, stall, drip, corrupt. The JSON is described in README.md "Fault rules".
 *
 * Called by dispatch (before an API runs), request (before its answer leaves), node (to load the rules). Randomness comes from the node.
 */
#ifndef KB_FAULT_H
#define KB_FAULT_H

#include "request.h"

struct kb_faults;
/* Parses {"rules":[…]} or a bare array. KW_EINVAL: text says which rule, what is wrong and what is meant. */
kw_err kb_faults_new(const char *json, struct kb_faults **f, char *text, size_t size) KW_CHECK;
void kb_faults_free(struct kb_faults *f);
uint64_t kb_faults_hits(const struct kb_faults *f); /* of all rules */

bool kb_fault_before(struct kb_request *rq);            /* true: the rule has taken the request over */
bool kb_fault_answer(struct kb_request *rq, void *msg); /* true: the rule sends the answer, or none, in its own time */
bool kb_fault_unanswered(struct kb_request *rq);        /* no answer is due, and the effect is there; true: as above */
void kb_fault_release(struct kb_request *rq);

#endif
