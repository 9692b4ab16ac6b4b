package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// How records get from the goroutines that send into C: they are gathered in units (unit.go), which are pushed in order by one goroutine at a time,
// mostly that of a sender.

// refusal is a record that C did not take: it is told where reports are.
type refusal struct {
	u     *unit
	at    int
	code  C.kc_err
	topic C.int32_t
	tell  func() // in place of all that: of a record that no unit has
}

// wait returns, with the lock, when there is room in the queue.
func (p *producer) wait(ctx context.Context) error {
	for {
		if p.closed {
			return errClosed("the producer")
		}
		if ctx.Err() != nil {
			return ctxError(ctx, NotPersisted, "sending a record")
		}
		if len(p.queue) < unitsWaiting {
			return nil
		}
		if err := p.waitMoved(ctx); err != nil {
			return err
		}
	}
}

// waitMoved waits, giving the lock away meanwhile, until the queue has moved.
func (p *producer) waitMoved(ctx context.Context) error {
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	moved := p.moved
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return ctxError(ctx, NotPersisted, "waiting for room in the producer's queue")
	}
}

// arm has the open unit pushed after a while. The timer holds the producer: it must not be collected before.
func (p *producer) arm(o *Producer) {
	if p.timer != nil {
		return // soon enough
	}
	p.timer = time.AfterFunc(p.linger, func() {
		p.mu.Lock()
		p.timer = nil // which holds the producer
		if p.open != nil {
			p.due = true
			p.push()
		}
		p.mu.Unlock()
		runtime.KeepAlive(o)
	})
}

// newUnit makes a unit with a slot.
func (p *producer) newUnit(o *Producer) *unit {
	u := &unit{owner: o, packet: &packet{}}
	if n := len(p.packets); n > 0 {
		u.packet = p.packets[n-1]
		p.packets = p.packets[:n-1]
	}
	if n := len(p.dones); n > 0 {
		u.done = p.dones[n-1]
		p.dones = p.dones[:n-1]
	}
	if n := len(p.free); n > 0 {
		u.slot = p.free[n-1]
		p.free = p.free[:n-1]
		p.slots[u.slot] = u
	} else {
		u.slot = uint32(len(p.slots))
		p.slots = append(p.slots, u)
	}
	return u
}

// complete moves the open unit to the queue.
func (p *producer) complete() {
	if p.open != nil {
		p.queue = append(p.queue, p.open)
	}
	p.open, p.due = nil, false
}

// recycle keeps a packet that C has read.
func (p *producer) recycle(k *packet) {
	if cap(k.arena) > packetBytes || cap(k.flats) > 4*unitRecords || len(p.packets) >= packetsKept {
		return
	}
	k.flats, k.arena = k.flats[:0], k.arena[:0]
	p.packets = append(p.packets, k)
}

// push moves what is complete or due into C, in order, unless somebody does that already; with the lock. It does not wait: when there is no
// room, or much to do for others, a goroutine goes on.
func (p *producer) push() {
	if p.pushing {
		return
	}
	p.pushing = true
	for turn := 0; ; turn++ {
		u := p.next()
		if u == nil {
			p.pushing = false
			return
		}
		if turn == unitsWaiting {
			go p.pushOn(u.owner, false)
			return
		}
		p.mu.Unlock()
		took := p.submit(u)
		p.mu.Lock()
		if !took {
			go p.pushOn(u.owner, true)
			return
		}
		p.gone(u)
	}
}

// next is the unit to be pushed now: the queue's first.
func (p *producer) next() *unit {
	if len(p.queue) == 0 && p.due {
		p.complete()
	}
	if len(p.queue) == 0 {
		return nil
	}
	return p.queue[0]
}

// gone: C has the unit.
func (p *producer) gone(u *unit) {
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	p.recycle(u.packet)
	u.packet = nil
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
	if u.left == 0 { // all reports are there already, or nobody wants to know
		p.freeSlot(u)
	}
}

func (p *producer) freeSlot(u *unit) {
	if u.slot == 0 || p.slots[u.slot] != u {
		return
	}
	p.slots[u.slot] = nil
	p.free = append(p.free, u.slot)
	if cap(u.done) > 0 && len(p.dones) < donesKept {
		clear(u.done)
		p.dones = append(p.dones, u.done[:0])
	}
	u.done = nil
}

// pushOn goes on with push in a goroutine of its own, waiting for room.
func (p *producer) pushOn(o *Producer, wait bool) {
	defer runtime.KeepAlive(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	for u := p.next(); u != nil; u = p.next() {
		p.mu.Unlock()
		for wait || !p.submit(u) {
			wait = false
			<-p.space
		}
		p.mu.Lock()
		p.gone(u)
	}
	p.pushing = false
}

// submit hands the unit's records over, as many as there is room for. false: not all.
func (p *producer) submit(u *unit) bool {
	for u.sent < u.count {
		got, code := p.cross(u)
		u.sent += got
		if code == C.KC_OK {
			continue
		}
		if code == C.KC_QUEUE_FULL && !p.isGivingUp() {
			return false
		}
		p.refuse(u, code)
		u.sent++
	}
	return true
}

// cross calls C once.
func (p *producer) cross(u *unit) (int, C.kc_err) {
	if !p.enter() {
		return 0, C.KC_CLOSED
	}
	defer p.leave()
	var arena unsafe.Pointer
	if len(u.arena) > 0 {
		arena = unsafe.Pointer(&u.arena[0])
	}
	got := C.kcgo_send(p.h, &u.flats[u.sent], C.size_t(u.count-u.sent), arena, C.size_t(len(u.arena)))
	return int(got.n), got.err
}

func (p *producer) isGivingUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveUp
}

// tellLater has f called where reports are told: one call at a time.
func (p *producer) tellLater(f func()) {
	p.mu.Lock()
	p.refused = append(p.refused, refusal{tell: f})
	p.startDrain()
	p.mu.Unlock()
}

// refuse has the record that C did not take reported as failed.
func (p *producer) refuse(u *unit, code C.kc_err) {
	if u.flats[u.sent].flags&C.KC_NO_REPORT != 0 {
		return // nobody wants to know
	}
	p.mu.Lock()
	p.refused = append(p.refused, refusal{u: u, at: u.sent, code: code, topic: u.flats[u.sent].topic})
	p.startDrain()
	p.mu.Unlock()
}
