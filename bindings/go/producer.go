package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Producer sends records. All methods may be called from any goroutine. Records that one goroutine sends to one partition are stored in that
// order, whichever of the sending methods it uses.
//
// SendAsync gathers what is sent within linger.ms (a millisecond at most) and crosses into C for all of it at once; SendBatch crosses once;
// Send crosses at once, and its record does not linger.
type Producer struct {
	p      *producer
	client *Client // which is collected after it
}

// Partitioner chooses the partition (0 … count-1) of a record that has none given; -1: the configured partitioner does. key nil: the record has
// none; it is borrowed for the call. It is called in the goroutine that sends, with no lock of the producer's that another send would need; it must
// not send or wait itself, nor end its goroutine (runtime.Goexit, and so T.FailNow). A panic in it reaches the caller of the send.
type Partitioner func(topic string, key []byte, count int) int

// ProducerOption is an option of [NewProducer].
type ProducerOption func(*producer)

// WithPartitioner sets the application's own partitioner. Each record then crosses into C by itself.
func WithPartitioner(f Partitioner) ProducerOption { return func(p *producer) { p.partitioner = f } }

type producer struct {
	gate
	c *client
	h *C.kc_producer
	timing
	taken *C.struct_kcgo_reports
	space chan struct{} // KC_READY_SPACE came

	partitioner Partitioner
	direct      chan struct{} // with a partitioner: held by the one that sends
	self        cgo.Handle
	panicked    any // of the partitioner, while direct is held

	mu       sync.Mutex
	open     *unit         // SendAsync adds to it
	queue    []*unit       // complete, in order, to be pushed
	due      bool          // open is to be pushed without waiting for its timer
	pushing  bool          // somebody takes from the queue
	closed   bool          // no more records
	over     chan struct{} // closed when it is closed altogether
	giveUp   bool          // what waits for room is refused
	moved    chan struct{} // closed when the queue has moved; nil: nobody waits for that
	timer    *time.Timer
	slots    []*unit // by unit.slot; 0 is nobody's
	free     []uint32
	packets  []*packet
	dones    [][]func(Report, error) // of units, to be used again
	refused  []refusal
	draining bool
	drainNow bool            // look again before it ends
	drained  []chan struct{} // closed at the end of a pass that began after they came
}

// NewProducer makes a producer on a client. config, which may be nil, is for this producer alone; the rest is the client's. Close it in the end.
func NewProducer(client *Client, config Config, options ...ProducerOption) (*Producer, error) {
	if client == nil {
		return nil, newError(ErrInvalid, NotPersisted, "NewProducer: the client is nil")
	}
	c := client.c
	k, err := config.build()
	if err != nil {
		return nil, err
	}
	defer C.kc_config_free(k)
	if !c.enter() {
		return nil, errClosed("the client")
	}
	defer c.leave()
	p := &producer{c: c, space: make(chan struct{}, 1), over: make(chan struct{}), slots: make([]*unit, 1)}
	for _, o := range options {
		o(p)
	}
	var e *C.kc_error
	if code := C.kc_producer_new(c.h, k, &p.h, &e); code != C.KC_OK {
		return nil, takeError(code, e, "making a producer")
	}
	p.taken = C.kcgo_reports_new()
	if p.partitioner != nil {
		p.direct = make(chan struct{}, 1)
		p.self = cgo.NewHandle(p)
		C.kcgo_partitioner_set(p.h, C.uintptr_t(p.self))
	}
	p.gate.free = p.freed
	p.timing = c.timing.over(k)
	if !c.add(unsafe.Pointer(p.h), p) {
		p.shut()
		return nil, errClosed("the client")
	}
	outer := &Producer{p, client}
	runtime.SetFinalizer(outer, func(o *Producer) { go o.p.abandon() })
	runtime.KeepAlive(client)
	return outer, nil
}

func (p *producer) freed() {
	C.kcgo_reports_free(p.taken)
	C.kc_producer_free(p.h)
	if p.partitioner != nil {
		p.self.Delete()
	}
}

// abandon is for a producer that was dropped without a Close: nothing of it is under way.
func (p *producer) abandon() {
	if p.beginClose() {
		defer close(p.over)
	}
	p.c.remove(unsafe.Pointer(p.h))
	p.shut()
}

// beginClose: false: another one has begun it.
func (p *producer) beginClose() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.closed
	p.closed = true
	return first
}

// ready is called by the client's watcher.
func (p *producer) ready(kind C.int32_t) {
	switch kind {
	case C.KC_READY_SPACE:
		select {
		case p.space <- struct{}{}:
		default:
		}
	case C.KC_READY_REPORTS:
		p.mu.Lock()
		p.startDrain()
		p.mu.Unlock()
	}
}

// Flush sends what was handed over without waiting for linger.ms, and returns when all of it has its outcome and has been reported. Not to be called
// in a function that reports call.
func (o *Producer) Flush(ctx context.Context) error {
	p := o.p
	defer runtime.KeepAlive(o)
	if err := p.emptied(ctx); err != nil {
		return err
	}
	if !p.enter() {
		return errClosed("the producer")
	}
	defer p.leave()
	err := p.c.run(ctx, "flushing the producer", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_producer_flush_start(p.h, opaque, op, e)
	}, nil)
	if err != nil {
		return err
	}
	return p.reported(ctx)
}

// emptied waits until C has all that was handed over before.
func (p *producer) emptied(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete()
	var last *unit
	if n := len(p.queue); n > 0 {
		last = p.queue[n-1]
	}
	p.push()
	for last != nil && last.packet != nil {
		if err := p.waitMoved(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reported waits until all that has an outcome now has been told.
func (p *producer) reported(ctx context.Context) error {
	done := make(chan struct{})
	p.mu.Lock()
	p.drained = append(p.drained, done)
	p.startDrain()
	p.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctxError(ctx, MaybePersisted, "waiting for reports")
	}
}

// Purge fails what is queued (NotPersisted) and, if asked, what is in flight (MaybePersisted), with [ErrCancelled].
func (o *Producer) Purge(inFlight bool) error {
	p := o.p
	defer runtime.KeepAlive(o)
	if !p.enter() {
		return errClosed("the producer")
	}
	defer p.leave()
	what := C.int32_t(C.KC_PURGE_QUEUED)
	if inFlight {
		what |= C.KC_PURGE_IN_FLIGHT
	}
	return codeError(C.kc_producer_purge(p.h, what), "purging the producer")
}

// ProducerStats is what waits and what was done.
type ProducerStats struct {
	QueuedRecords, QueuedBytes, InFlightRequests              uint64
	RecordsOK, RecordsFailed, BatchesSent, BytesSent, Retries uint64
	RecordsDuplicate                                          uint64 // of RecordsOK: those that the broker had already
}

// Stats tells what waits and what was done.
func (o *Producer) Stats() (ProducerStats, error) {
	p := o.p
	defer runtime.KeepAlive(o)
	if !p.enter() {
		return ProducerStats{}, errClosed("the producer")
	}
	defer p.leave()
	var s C.kc_producer_stats
	code := C.kc_producer_stats_get(p.h, &s, C.sizeof_kc_producer_stats)
	return ProducerStats{uint64(s.queued_records), uint64(s.queued_bytes), uint64(s.in_flight_requests), uint64(s.records_ok), uint64(s.records_failed),
		uint64(s.batches_sent), uint64(s.bytes_sent), uint64(s.retries), uint64(s.records_duplicate)}, codeError(code, "the producer's figures")
}

// Fatal is the error that ended the producer, nil: it goes on.
func (o *Producer) Fatal() error {
	p := o.p
	defer runtime.KeepAlive(o)
	if !p.enter() {
		return nil
	}
	defer p.leave()
	e := C.kc_producer_fatal(p.h)
	if e == nil {
		return nil
	}
	defer C.kc_error_free(e)
	return borrowedError(e)
}

// NewGUID makes a UUIDv7 that is greater than all that the producer made before.
func (o *Producer) NewGUID() (GUID, error) {
	p := o.p
	defer runtime.KeepAlive(o)
	if !p.enter() {
		return GUID{}, errClosed("the producer")
	}
	defer p.leave()
	var g GUID
	code := C.kc_producer_guid_make(p.h, (*C.uint8_t)(&g[0]))
	return g, codeError(code, "making a GUID")
}

// Close sends what it has, waits for the outcomes and ends. When ctx ends first, what is left fails; each record is reported in any case. Not to be
// called in a function that reports call, which it waits for.
func (o *Producer) Close(ctx context.Context) error {
	runtime.SetFinalizer(o, nil)
	return o.p.close(ctx)
}

func (p *producer) close(ctx context.Context) error {
	if !p.beginClose() {
		return p.c.awaitClose(ctx, p.over, "closing the producer")
	}
	defer close(p.over)
	err := p.emptied(ctx)
	if err != nil {
		p.refuseRest()
	}
	if cerr := p.closeHandle(ctx, err != nil); err == nil {
		err = cerr
	}
	_ = p.reported(context.Background())
	p.c.remove(unsafe.Pointer(p.h))
	p.shut()
	return err
}

// refuseRest gives up what waits for room.
func (p *producer) refuseRest() {
	p.mu.Lock()
	p.giveUp = true
	p.mu.Unlock()
	select {
	case p.space <- struct{}{}:
	default:
	}
	_ = p.emptied(context.Background())
}

func (p *producer) closeHandle(ctx context.Context, late bool) error {
	timeout := timeoutOf(ctx)
	if late || ctx.Err() != nil {
		timeout = 1
	}
	if !p.enter() {
		return nil
	}
	defer p.leave()
	stop := context.AfterFunc(ctx, func() { // what is left has its outcome at once then
		if p.enter() {
			C.kc_producer_purge(p.h, C.KC_PURGE_QUEUED|C.KC_PURGE_IN_FLIGHT)
			p.leave()
		}
	})
	defer stop()
	err := p.c.run(context.Background(), "closing the producer", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_producer_close_start(p.h, timeout, opaque, op, e)
	}, nil)
	if ctx.Err() != nil && err == nil {
		return ctxError(ctx, MaybePersisted, "closing the producer")
	}
	return err
}
