package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"time"
)

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
		if len(came) > 0 { // both at once: what is known is told
			got := <-came
			return got.report, got.err
		}
		err := ctxError(ctx, MaybePersisted, "waiting for the outcome of a record to "+r.Topic)
		return Report{Topic: r.Topic, Partition: -1, Offset: -1, Outcome: MaybePersisted, Err: err}, err
	}
}

// timeoutFor is the limit of a record whose sender waits as long as ctx: a little less, so that the outcome, which has a history, comes before the
// end of ctx, which has none. 0: delivery.timeout.ms.
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
// called exactly once with the outcome, also when the record is refused, in a goroutine of the producer's, one call at a time: what takes long there
// delays the other reports, and a panic there ends the program. nil: nobody wants to know.
func (o *Producer) SendAsync(ctx context.Context, r Record, done func(Report, error)) {
	if err := o.send(ctx, &r, 0, 0, done); err != nil && done != nil {
		rep := Report{Topic: r.Topic, Partition: -1, Offset: -1, Err: err}
		o.p.tellLater(func() { done(rep, err) })
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

// SendBatch sends records and waits for the outcome of all. The reports are in the order of the records; the error is the first of theirs. They
// leave at once, linger.ms does not hold them back. When ctx ends first the error is ctx's, and there are no reports: what was handed over may still
// be stored.
func (o *Producer) SendBatch(ctx context.Context, records []Record) ([]Report, error) {
	came := make(chan []Report, 1)
	if err := o.sendBatch(ctx, records, C.KC_SEND_NOW, o.p.timeoutFor(ctx), func(reports []Report) { came <- reports }); err != nil {
		return nil, err
	}
	select {
	case reports := <-came:
		return reports, firstFailure(reports)
	case <-ctx.Done():
		if len(came) > 0 { // both at once: what is known is told
			reports := <-came
			return reports, firstFailure(reports)
		}
		return nil, ctxError(ctx, MaybePersisted, "waiting for the outcome of a batch")
	}
}

func firstFailure(reports []Report) error {
	for i := range reports {
		if reports[i].Err != nil {
			return reports[i].Err
		}
	}
	return nil
}

// SendBatchAsync hands records over, which are copied, and crosses into C once for all. It waits, as long as ctx allows, only while the queue is
// full. An error: none was taken, and done will not be called; else it is called once with the reports in the order of the records, as SendAsync's
// is; nil: nobody wants to know.
func (o *Producer) SendBatchAsync(ctx context.Context, records []Record, done func([]Report)) error {
	return o.sendBatch(ctx, records, 0, 0, done)
}

func (o *Producer) sendBatch(ctx context.Context, records []Record, flags C.uint32_t, timeout C.int64_t, done func([]Report)) error {
	p := o.p
	defer runtime.KeepAlive(o)
	reported := done != nil
	if len(records) == 0 {
		if reported {
			p.tellLater(func() { done(nil) })
		}
		return nil
	}
	expect := func(u *unit) {
		if reported {
			u.reports = make([]Report, len(records))
			u.whole = func() { done(u.reports) }
		}
	}
	if p.partitioner != nil {
		return o.sendDirect(ctx, records, flags, timeout, expect, reported)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wait(ctx); err != nil {
		return err
	}
	u := p.newUnit(o)
	if err := p.fill(u, records, flags, timeout, reported); err != nil {
		p.freeSlot(u)
		return err
	}
	expect(u)
	if reported {
		u.left = u.count
	}
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
