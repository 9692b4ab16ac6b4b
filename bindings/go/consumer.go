package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Consumer reads records: of partitions that it is assigned ([Consumer.Assign]), or as a member of a group ([Consumer.Subscribe]).
//
// One goroutine polls (Poll, PollBatch, PollBorrowed, or Records; another one gets [ErrBusy]); everything else may be called from any goroutine
// meanwhile. What the polling goroutine has gone past is processed, batch by batch: a batch is once the next one is asked for, by a poll or within
// Records, and is then committed automatically with enable.auto.commit. A batch that Close finds begun is delivered again, unless [Consumer.Commit] has
// committed what of it was given out. A consumer that is made [WithExplicitProcessed] is told what is processed, record by record.
type Consumer struct {
	c      *consumer
	client *Client // which is collected after it
}

// ConsumerOption is an option of [NewConsumer].
type ConsumerOption func(*consumer)

// WithExplicitProcessed has only what [Consumer.Processed] is told committed automatically, and by Commit without offsets.
func WithExplicitProcessed() ConsumerOption {
	return func(c *consumer) { c.mode = C.KC_PROCESSED_EXPLICIT }
}

// WithAssigned has f called, in PollBatch, PollBorrowed and Records, with partitions that the group has given, before anything of them is
// delivered: the place to seek to offsets that are kept elsewhere.
func WithAssigned(f func(*Consumer, *Assigned)) ConsumerOption {
	return func(c *consumer) { c.onAssigned = f }
}

// WithRevoked has f called with partitions that are to be given up: the place to commit.
func WithRevoked(f func(*Consumer, *Revoked)) ConsumerOption {
	return func(c *consumer) { c.onRevoked = f }
}

// WithLost has f called with partitions that were lost.
func WithLost(f func(*Consumer, *Lost)) ConsumerOption {
	return func(c *consumer) { c.onLost = f }
}

// WithPartitionEnd has f called at the end of a partition (with enable.partition.eof).
func WithPartitionEnd(f func(*Consumer, *PartitionEnd)) ConsumerOption {
	return func(c *consumer) { c.onEnd = f }
}

type consumer struct {
	gate
	c        *client
	h        *C.kc_consumer
	mode     C.kc_processed_mode
	came     chan struct{} // KC_READY_EVENT came
	over     chan struct{} // closed when Close begins
	ended    chan struct{} // closed when it has ended
	shutting atomic.Bool
	grouped  bool // it may commit

	onAssigned func(*Consumer, *Assigned)
	onRevoked  func(*Consumer, *Revoked)
	onLost     func(*Consumer, *Lost)
	onEnd      func(*Consumer, *PartitionEnd)

	polling atomic.Bool
	// Of the polling goroutine:
	event *C.struct_kcgo_event // polled last; it is freed in the next poll
	batch *Batch               // that Records goes over, not to its end
	at    int                  // the next record of it
	// What changed since batch was polled: its rest is not to be delivered.
	stale atomic.Bool
	place atomic.Pointer[TopicPartition] // of batch, or of what a poll has given out; nil: all of that is processed
	given atomic.Int64                   // up to here it has been given out; -1: nothing of it
}

// NewConsumer makes a consumer on a client, with nothing assigned. config, which may be nil, is for this consumer alone; the rest is the client's.
// Close it in the end: otherwise the group finds out by session.timeout.ms only.
func NewConsumer(client *Client, config Config, options ...ConsumerOption) (*Consumer, error) {
	if client == nil {
		return nil, newError(ErrInvalid, NotPersisted, "NewConsumer: the client is nil")
	}
	k, err := config.build()
	if err != nil {
		return nil, err
	}
	defer C.kc_config_free(k)
	if !client.c.enter() {
		return nil, errClosed("the client")
	}
	defer client.c.leave()
	c := &consumer{c: client.c, mode: C.KC_PROCESSED_BY_POLL, came: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{}),
		event: new(C.struct_kcgo_event)}
	for _, o := range options {
		o(c)
	}
	c.grouped = client.c.grouped || configGet(k, "group.id") != ""
	var e *C.kc_error
	if code := C.kc_consumer_new(client.c.h, k, c.mode, &c.h, &e); code != C.KC_OK {
		return nil, takeError(code, e, "making a consumer")
	}
	c.gate.free = func() {
		C.kc_event_free(c.event.event)
		C.kc_consumer_free(c.h)
	}
	if !client.c.add(unsafe.Pointer(c.h), c) {
		c.shut()
		return nil, errClosed("the client")
	}
	outer := &Consumer{c, client}
	runtime.SetFinalizer(outer, func(o *Consumer) { go o.c.abandon() })
	runtime.KeepAlive(client)
	return outer, nil
}

func (c *consumer) abandon() {
	c.c.remove(unsafe.Pointer(c.h))
	if !c.shutting.Swap(true) {
		close(c.over)
		defer close(c.ended)
	}
	c.shut()
}

func (c *consumer) ready(C.int32_t) {
	select {
	case c.came <- struct{}{}:
	default:
	}
}

// take notes a batch that is given out, up to before an offset.
func (c *consumer) take(b *Batch, upTo int64) {
	c.place.Store(nil)
	c.stale.Store(false)
	c.given.Store(upTo)
	c.place.Store(&TopicPartition{Topic: b.Topic, Partition: b.Partition, LeaderEpoch: b.LeaderEpoch})
}

// pending is up to where records have been given out that no poll has marked as processed; false: there are none.
func (c *consumer) pending() (TopicPartition, bool) {
	for {
		place := c.place.Load()
		upTo := c.given.Load()
		if place != c.place.Load() {
			continue // another batch meanwhile
		}
		if place == nil || upTo < 0 || c.stale.Load() || c.mode != C.KC_PROCESSED_BY_POLL {
			return TopicPartition{}, false
		}
		p := *place
		p.Offset = upTo
		return p, true
	}
}

// next polls until there is an event, which c.event then has. What was given out before is processed by that. With the gate.
func (c *consumer) next(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return ctxError(ctx, NotPersisted, "polling")
		}
		before := c.event.event
		c.event.event = nil
		c.place.Store(nil)
		code := C.kcgo_poll(c.h, before, c.event)
		switch code {
		case C.KC_OK:
			return nil
		case C.KC_TIMED_OUT, C.KC_WOKEN, C.KC_NO_MEMORY:
		default:
			return codeError(code, "polling")
		}
		if code == C.KC_NO_MEMORY { // nothing is lost; there is a moment to give memory back
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-c.came:
		case <-ctx.Done():
		case <-c.over:
			return errClosed("the consumer")
		}
	}
}

// begin is for whoever polls; end must follow.
func (c *consumer) begin() error {
	if c.polling.Swap(true) {
		return newError(ErrBusy, NotPersisted, "polling: another goroutine polls this consumer; one at a time may")
	}
	if !c.enter() {
		c.polling.Store(false)
		return errClosed("the consumer")
	}
	return nil
}

func (c *consumer) end() {
	c.polling.Store(false)
	c.leave()
}

// rest is what Records left of its batch, nil: nothing, or it is not to be delivered any more.
func (c *consumer) rest() *Batch {
	b := c.batch
	c.batch = nil
	if b == nil || c.at >= b.Len() || c.stale.Load() {
		return nil
	}
	c.given.Store(b.NextOffset)
	return b.tail(c.at)
}

// Poll waits for the next event, of whatever kind. It calls no functions of the options.
func (o *Consumer) Poll(ctx context.Context) (Event, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if b := c.rest(); b != nil {
		b.copyViews()
		return b, nil
	}
	for {
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		if c.event.kind == C.KC_EVENT_RECORDS {
			return c.copied(), nil
		}
		if e := c.other(c.event); e != nil {
			return e, nil
		}
	}
}

func (c *consumer) copied() *Batch {
	b := c.batchOf(c.event)
	b.copyBytes()
	b.copyViews()
	c.take(b, b.NextOffset)
	return b
}

// records polls for records. Other events go to the functions of the options, in this goroutine; errors are returned, after which polling goes on.
func (o *Consumer) records(ctx context.Context) error {
	c := o.c
	for {
		if err := c.next(ctx); err != nil {
			return err
		}
		if c.event.kind == C.KC_EVENT_RECORDS {
			return nil
		}
		switch e := c.other(c.event).(type) {
		case *Assigned:
			if c.onAssigned != nil {
				c.onAssigned(o, e)
			}
		case *Revoked:
			if c.onRevoked != nil {
				c.onRevoked(o, e)
			}
		case *Lost:
			if c.onLost != nil {
				c.onLost(o, e)
			}
		case *PartitionEnd:
			if c.onEnd != nil {
				c.onEnd(o, e)
			}
		case *ConsumerError:
			return e
		}
	}
}

// PollBatch waits for the next records. The batch is a copy, made once, which the application may keep. An error that is a *[ConsumerError] is told
// once, and polling goes on.
func (o *Consumer) PollBatch(ctx context.Context) (*Batch, error) {
	return o.polled(ctx, o.c.copied)
}

// PollBorrowed is PollBatch without the copy: the batch shows the library's memory, and must be released.
func (o *Consumer) PollBorrowed(ctx context.Context) (*Batch, error) {
	c := o.c
	return o.polled(ctx, func() *Batch {
		b := c.batchOf(c.event)
		b.event = C.kc_event_ref(c.event.event)
		c.take(b, b.NextOffset)
		return b
	})
}

// polled gives what [Consumer.Records] has left of a batch, which is a copy in any case, or waits for an event and gives what made makes of it.
func (o *Consumer) polled(ctx context.Context, made func() *Batch) (*Batch, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if b := c.rest(); b != nil {
		b.copyViews()
		return b, nil
	}
	if err := o.records(ctx); err != nil {
		return nil, err
	}
	return made(), nil
}

// Records goes over records as they come, until ctx ends (which it gives as an error), the consumer is closed, or the loop is left. A loop that is
// left loses nothing: the next one, or a poll, goes on behind the last record. Key, value and headers may be kept. An error that is a
// *[ConsumerError] is told once: the loop may go on.
func (o *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c := o.c
		defer runtime.KeepAlive(o)
		if err := c.begin(); err != nil {
			yield(Record{}, err)
			return
		}
		defer c.end()
		for {
			if c.batch != nil && !c.overBatch(ctx, yield) {
				return
			}
			err := o.records(ctx)
			if err == nil {
				c.batch, c.at = c.batchOf(c.event), 0
				c.batch.copyBytes()
				c.take(c.batch, -1)
				continue
			}
			var told *ConsumerError
			if !yield(Record{}, err) || !errors.As(err, &told) {
				return
			}
		}
	}
}

// overBatch yields what is left of the batch; false: the loop was left.
func (c *consumer) overBatch(ctx context.Context, yield func(Record, error) bool) bool {
	b := c.batch
	done := ctx.Done()
	for c.at < b.Len() && !c.stale.Load() {
		if done != nil {
			select {
			case <-done:
				yield(Record{}, ctxError(ctx, NotPersisted, "polling"))
				return false
			default:
			}
		}
		c.at++
		if c.grouped {
			c.given.Store(b.upTo(c.at))
		}
		if !yield(b.Record(c.at-1), nil) {
			return false
		}
	}
	c.batch = nil
	return true
}

// Close ends consuming: what is processed is committed (enable.auto.commit), and a group's member leaves it, unless it has a group.instance.id. When
// ctx ends first it goes on without waiting any further.
func (o *Consumer) Close(ctx context.Context) error {
	runtime.SetFinalizer(o, nil)
	return o.c.close(ctx)
}

func (c *consumer) close(ctx context.Context) error {
	if c.shutting.Swap(true) {
		return c.c.awaitClose(ctx, c.ended, "closing the consumer")
	}
	defer close(c.ended)
	defer c.shut()
	defer c.c.remove(unsafe.Pointer(c.h))
	close(c.over)
	if !c.enter() {
		return nil
	}
	defer c.leave()
	timeout := timeoutOf(ctx)
	if ctx.Err() != nil {
		timeout = 1
		ctx = context.WithoutCancel(ctx)
	}
	return c.c.run(ctx, "closing the consumer", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_consumer_close_start(c.h, timeout, opaque, op, e)
	}, nil)
}
