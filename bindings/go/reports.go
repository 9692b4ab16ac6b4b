package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"
)

// startDrain has a goroutine take the reports that there are, unless one is at it; with the lock.
func (p *producer) startDrain() {
	p.drainNow = true
	if !p.draining {
		p.draining = true
		go p.drain()
	}
}

// drain tells outcomes until there are no more. There is one at a time, so functions that reports call need not mind each other.
func (p *producer) drain() {
	p.mu.Lock()
	for p.drainNow {
		p.drainNow = false
		waiting := p.drained
		p.drained = nil
		refused := p.refused
		p.refused = nil
		p.mu.Unlock()
		p.tellRefused(refused)
		p.takeReports()
		for _, w := range waiting {
			close(w)
		}
		p.mu.Lock()
	}
	p.draining = false
	p.mu.Unlock()
}

func (p *producer) takeReports() {
	for p.enter() {
		got := C.kcgo_reports_next(p.h, p.taken)
		if got.n > 0 {
			p.tell(int(got.n))
		}
		p.leave()
		if got.n == 0 {
			return
		}
	}
}

// tell goes over the reports that were taken, in runs that belong to one unit.
func (p *producer) tell(n int) {
	reports := p.taken.reports[:n]
	for from := 0; from < n; {
		slot := uint32(reports[from].opaque >> 32)
		to := from + 1
		for to < n && uint32(reports[to].opaque>>32) == slot {
			to++
		}
		p.mu.Lock()
		u := p.slots[slot]
		p.mu.Unlock()
		if u != nil {
			p.tellRun(u, from, to, n-1)
			p.settle(u, to-from)
		}
		from = to
	}
}

// tellRun tells the reports from … to-1; last: of all that were taken, which alone may have failed, or have attempts.
func (p *producer) tellRun(u *unit, from, to, last int) {
	topic, name := C.int32_t(0), ""
	for i := from; i < to; i++ {
		r := &p.taken.reports[i]
		if r.topic != topic {
			topic, name = r.topic, p.c.topicName(r.topic)
		}
		rep := Report{Topic: name, Partition: int32(r.partition), Offset: int64(r.offset), Timestamp: time.UnixMilli(int64(r.timestamp_ms)),
			Outcome: Outcome(r.outcome), Flags: ReportFlag(r.flags)}
		if i == last && p.taken.tried != 0 {
			rep.Attempts = p.attempts()
		}
		if r.err != C.KC_OK {
			rep.Err = p.failure(r, &rep)
		}
		u.tell(int(uint32(r.opaque)), rep)
	}
}

// attempts are those of the report that was taken last.
func (p *producer) attempts() []Attempt {
	var all []Attempt
	var a C.kc_attempt
	for C.kc_reports_attempt(p.taken.held, C.size_t(len(all)), &a) == C.KC_OK {
		all = append(all, attemptOf(&a))
	}
	return all
}

// failure is the error of the report that was taken last.
func (p *producer) failure(r *C.kc_report, rep *Report) error {
	if e := p.taken.error; e != nil {
		return borrowedError(e)
	}
	code := Code(r.err)
	return newError(code, rep.Outcome, "a record to %s[%d]: %s", rep.Topic, rep.Partition, code.Error())
}

// tell hands one outcome over.
func (u *unit) tell(at int, rep Report) {
	if u.reports != nil {
		u.reports[at] = rep
	} else if done := u.done[at]; done != nil {
		u.done[at] = nil
		done(rep, rep.Err)
	}
}

// settle counts reports that were told.
func (p *producer) settle(u *unit, n int) {
	p.mu.Lock()
	u.left -= n
	over := u.left == 0
	if over && u.packet == nil { // else it is freed when C has it
		p.freeSlot(u)
	}
	p.mu.Unlock()
	if over && u.whole != nil {
		u.whole()
	}
}

func (p *producer) tellRefused(refused []refusal) {
	for _, r := range refused {
		if r.tell != nil {
			r.tell()
			continue
		}
		code := Code(r.code)
		topic := p.c.topicName(r.topic)
		err := newError(code, NotPersisted, "a record to %s was not accepted: %s", topic, code.Error())
		if r.code == C.KC_INVALID && p.partitioner != nil {
			err.Message = fmt.Sprintf("a record to %s was not accepted: its partition, or the partitioner's choice, is none of the topic's", topic)
		}
		r.u.tell(r.at, Report{Topic: topic, Partition: -1, Offset: -1, Timestamp: time.Time{}, Err: err})
		p.settle(r.u, 1)
	}
}
