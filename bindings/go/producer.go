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

// Partitioner chooses the partition (0 … count-1) of a record that has none given; -1: the configured partitioner does. key nil: the record has none; it is borrowed for the call.
// It is called in the goroutine that sends, with no lock of the producer's that another send would need; it must not send or wait itself. A panic in it reaches the caller
// of the send.
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

// refusal is a record that C did not take: it is told where reports are.
type refusal struct {
	u     *unit
	at    int
	code  C.kc_err
	topic C.int32_t
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
	p := &producer{c: c, space: make(chan struct{}, 1), slots: make([]*unit, 1)}
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
	c.add(unsafe.Pointer(p.h), p)
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
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.c.remove(unsafe.Pointer(p.h))
	p.shut()
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

// Send sends a record and waits for its outcome. It leaves at once, linger.ms does not hold it back. ctx's deadline is the record's too. When
// ctx ends first the record may still be stored: the error's Outcome says so.
func (o *Producer) Send(ctx context.Context, r Record) (Report, error) {
	type result struct {
		report Report
		err    error
	}
	came := make(chan result, 1)
	err := o.send(ctx, &r, C.KC_SEND_NOW, o.p.timeoutFor(ctx), func(rep Report, err error) { came <- result{rep, err} })
	if err != nil {
		return Report{Topic: r.Topic, Partition: -1, Offset: -1, Err: err}, err
	}
	select {
	case got := <-came:
		return got.report, got.err
	case <-ctx.Done():
		err := ctxError(ctx, MaybePersisted, "waiting for the outcome of a record to "+r.Topic)
		return Report{Topic: r.Topic, Partition: -1, Offset: -1, Outcome: MaybePersisted, Err: err}, err
	}
}

// timeoutFor is the limit of a record whose sender waits as long as ctx: a little less, so that the outcome, which has a history, comes before the end of
// ctx, which has none. 0: delivery.timeout.ms.
func (p *producer) timeoutFor(ctx context.Context) C.int64_t {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(at)
	left -= min(left/10, 50*time.Millisecond)
	if left >= p.delivery {
		return 0
	}
	return C.int64_t(max(left.Microseconds(), 1))
}

// SendAsync hands a record over: its key, value and headers are copied. It waits, as long as ctx allows, only while the queue is full. done is
// called exactly once with the outcome, also when the record is refused, in a goroutine of the producer's, one call at a time: what takes long there delays
// the other reports. nil: nobody wants to know.
func (o *Producer) SendAsync(ctx context.Context, r Record, done func(Report, error)) {
	if err := o.send(ctx, &r, 0, 0, done); err != nil && done != nil {
		rep := Report{Topic: r.Topic, Partition: -1, Offset: -1, Err: err}
		go done(rep, err)
	}
}

// send puts the record into the open unit. An error: it was not taken, and done will not be called.
func (o *Producer) send(ctx context.Context, r *Record, flags C.uint32_t, timeout C.int64_t, done func(Report, error)) error {
	p := o.p
	defer runtime.KeepAlive(o)
	topic, err := p.c.topicCached(r.Topic)
	if err != nil {
		return err
	}
	if p.partitioner != nil {
		return o.sendDirect(ctx, []Record{*r}, flags, timeout, func(u *unit) { u.done = append(u.done, done) }, done != nil)
	}
	p.mu.Lock()
	for {
		if err := p.wait(ctx); err != nil {
			p.mu.Unlock()
			return err
		}
		if p.open == nil || p.open.fits(r) || p.open.count == 0 {
			break
		}
		p.complete()
	}
	if p.open == nil {
		p.open = p.newUnit(o)
	}
	u := p.open
	if !u.fits(r) {
		p.mu.Unlock()
		return newError(ErrTooLarge, NotPersisted, "a record of %d bytes to %s can never be sent", u.size(r), r.Topic)
	}
	u.add(topic, r, flags, timeout, done != nil)
	u.done = append(u.done, done)
	if done != nil {
		u.left++
	}
	switch {
	case u.isFull():
		p.complete()
		p.push()
	case flags&C.KC_SEND_NOW != 0 || p.linger == 0:
		p.due = true
		p.push()
	case u.count == 1:
		p.arm(o)
	}
	p.mu.Unlock()
	return nil
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

// refuse has the record that C did not take reported as failed.
func (p *producer) refuse(u *unit, code C.kc_err) {
	if u.flats[u.sent].flags&C.KC_NO_REPORT != 0 {
		return // nobody wants to know
	}
	p.mu.Lock()
	p.refused = append(p.refused, refusal{u, u.sent, code, u.flats[u.sent].topic})
	p.startDrain()
	p.mu.Unlock()
}

// SendBatch sends records and waits for the outcome of all. The reports are in the order of the records; the error is the first of theirs. They leave at
// once, linger.ms does not hold them back. When ctx ends first the error is ctx's, and there are no reports: what was handed over may still be stored.
func (o *Producer) SendBatch(ctx context.Context, records []Record) ([]Report, error) {
	came := make(chan []Report, 1)
	if err := o.sendBatch(ctx, records, C.KC_SEND_NOW, o.p.timeoutFor(ctx), func(reports []Report) { came <- reports }); err != nil {
		return nil, err
	}
	select {
	case reports := <-came:
		for i := range reports {
			if reports[i].Err != nil {
				return reports, reports[i].Err
			}
		}
		return reports, nil
	case <-ctx.Done():
		return nil, ctxError(ctx, MaybePersisted, "waiting for the outcome of a batch")
	}
}

// SendBatchAsync hands records over, which are copied, and crosses into C once for all. It waits, as long as ctx allows, only while the queue is full. An error: none was
// taken, and done will not be called; else it is called once with the reports in the order of the records, as SendAsync's is.
func (o *Producer) SendBatchAsync(ctx context.Context, records []Record, done func([]Report)) error {
	return o.sendBatch(ctx, records, 0, 0, done)
}

func (o *Producer) sendBatch(ctx context.Context, records []Record, flags C.uint32_t, timeout C.int64_t, done func([]Report)) error {
	p := o.p
	defer runtime.KeepAlive(o)
	if len(records) == 0 {
		go done(nil)
		return nil
	}
	expect := func(u *unit) {
		u.reports = make([]Report, len(records))
		u.whole = func() { done(u.reports) }
	}
	if p.partitioner != nil {
		return o.sendDirect(ctx, records, flags, timeout, expect, true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wait(ctx); err != nil {
		return err
	}
	u := p.newUnit(o)
	if err := p.fill(u, records, flags, timeout, true); err != nil {
		p.freeSlot(u)
		return err
	}
	expect(u)
	u.left = u.count
	p.complete()
	p.queue = append(p.queue, u)
	p.push()
	return nil
}

// fill adds all records.
func (p *producer) fill(u *unit, records []Record, flags C.uint32_t, timeout C.int64_t, reported bool) error {
	for i := range records {
		r := &records[i]
		topic, err := p.c.topicCached(r.Topic)
		if err != nil {
			return err
		}
		if !u.fits(r) {
			return newError(ErrTooLarge, NotPersisted, "the batch is larger than 4 GiB: send it in parts")
		}
		u.add(topic, r, flags, timeout, reported)
	}
	return nil
}

// Flush sends what was handed over without waiting for linger.ms, and returns when all of it has its outcome and has been reported. Not to be called in a
// function that reports call.
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

// Close sends what it has, waits for the outcomes and ends. When ctx ends first, what is left fails; each record is reported in any case.
func (o *Producer) Close(ctx context.Context) error {
	runtime.SetFinalizer(o, nil)
	return o.p.close(ctx)
}

func (p *producer) close(ctx context.Context) error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
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
