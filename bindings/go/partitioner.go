package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"time"
	"unsafe"
)

// With a partitioner of the application's, records cross in the goroutine that sends them: C calls back into it, and a panic there goes on where
// the application sent. One at a time, so that records keep their order.

// sendDirect sends records; expect tells the unit who wants to know of them.
func (o *Producer) sendDirect(ctx context.Context, records []Record, flags C.uint32_t, timeout C.int64_t, expect func(*unit), reported bool) error {
	p := o.p
	if ctx.Err() != nil {
		return ctxError(ctx, NotPersisted, "sending a record")
	}
	select {
	case p.direct <- struct{}{}:
	case <-ctx.Done():
		return ctxError(ctx, NotPersisted, "sending a record")
	}
	defer func() { <-p.direct }()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errClosed("the producer")
	}
	u := p.newUnit(o)
	p.mu.Unlock()
	if err := p.fill(u, records, flags, timeout, reported); err != nil {
		p.finishDirect(u)
		return err
	}
	expect(u)
	if reported {
		p.mu.Lock()
		u.left = u.count
		p.mu.Unlock()
	}
	err := p.crossAll(ctx, u)
	panicked := p.panicked
	p.panicked = nil
	taken := u.sent
	if (err != nil || panicked != nil) && reported {
		p.dropRest(u, err)
	}
	p.finishDirect(u)
	if panicked != nil {
		panic(panicked)
	}
	if taken > 0 {
		return nil // the outcome of the others is reported
	}
	return err
}

// crossAll hands the unit's records over, waiting for room and for the number of partitions. An error: those from u.sent on were not taken.
func (p *producer) crossAll(ctx context.Context, u *unit) error {
	pause := time.Millisecond
	for u.sent < u.count {
		got, code := p.cross(u)
		u.sent += got
		switch {
		case p.panicked != nil:
			return nil
		case code == C.KC_OK:
		case code == C.KC_QUEUE_FULL, code == C.KC_TIMED_OUT: // no room; or the topic's partitions are not known yet
			select {
			case <-p.space:
			case <-time.After(pause):
				pause = min(2*pause, 50*time.Millisecond)
			case <-ctx.Done():
				return ctxError(ctx, NotPersisted, "sending a record")
			}
		default:
			p.refuse(u, code)
			u.sent++
		}
	}
	return nil
}

// dropRest: of the records from u.sent on nobody will tell.
func (p *producer) dropRest(u *unit, err error) {
	if err == nil {
		err = newError(ErrCancelled, NotPersisted, "the partitioner panicked")
	}
	for i := u.sent; i < u.count && u.reports != nil; i++ {
		u.reports[i] = Report{Partition: -1, Offset: -1, Err: err}
	}
	if u.sent == 0 {
		u.whole = nil
	}
	p.settle(u, u.count-u.sent)
}

func (p *producer) finishDirect(u *unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recycle(u.packet)
	u.packet = nil
	if u.left == 0 {
		p.freeSlot(u)
	}
}

//export kcgoPartition
func kcgoPartition(handle C.uintptr_t, topic C.int32_t, key unsafe.Pointer, keySize C.size_t, hasKey, count C.int32_t) (choice C.int32_t) {
	p := cgo.Handle(handle).Value().(*producer)
	// A panic must not go through C's frames: the record is refused, and the sender panics.
	defer func() {
		if r := recover(); r != nil {
			p.panicked = r
			choice = -2
		}
	}()
	var k []byte
	if hasKey != 0 {
		k = unsafe.Slice((*byte)(key), int(keySize))
		if k == nil {
			k = []byte{}
		}
	}
	n := p.partitioner(p.c.topicName(topic), k, int(count))
	if n < -1 || n >= int(count) {
		return -2
	}
	return C.int32_t(n)
}
