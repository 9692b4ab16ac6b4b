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

// Subscribe joins group.id for these topics, in place of an earlier subscription. Joining goes on in the background, within the polls; topics need
// not exist yet. None: as Unsubscribe.
func (o *Consumer) Subscribe(topics ...string) error {
	return o.subscribe(topics, "subscribing", func(h *C.kc_consumer, names **C.char, n C.size_t, e **C.kc_error) C.kc_err {
		return C.kc_consumer_subscribe(h, names, n, e)
	})
}

// SubscribeRegex is the same for all topics that one of the patterns matches: POSIX extended regular expressions, which match anywhere in the name
// unless anchored with ^ and $.
func (o *Consumer) SubscribeRegex(patterns ...string) error {
	return o.subscribe(patterns, "subscribing by patterns", func(h *C.kc_consumer, names **C.char, n C.size_t, e **C.kc_error) C.kc_err {
		return C.kc_consumer_subscribe_regex(h, names, n, e)
	})
}

func (o *Consumer) subscribe(names []string, what string, call func(*C.kc_consumer, **C.char, C.size_t, **C.kc_error) C.kc_err) error {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return errClosed("the consumer")
	}
	defer c.leave()
	var m cmem
	defer m.free()
	var e *C.kc_error
	code := call(c.h, m.strings(names), C.size_t(len(names)), &e)
	c.drop(nil)
	return takeError(code, e, what)
}

// Unsubscribe ends the subscription: the partitions are given up at once, and the member leaves the group. It does not wait for that.
func (o *Consumer) Unsubscribe() error {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return errClosed("the consumer")
	}
	defer c.leave()
	var e *C.kc_error
	code := C.kc_consumer_unsubscribe(c.h, &e)
	c.drop(nil)
	return takeError(code, e, "unsubscribing")
}

// drop has the rest of what Records goes over not delivered, where stays (nil: none) does not say that it stays.
func (c *consumer) drop(stays func(place TopicPartition) bool) {
	if place := c.place.Load(); place != nil && (stays == nil || !stays(*place)) {
		c.stale.Store(true)
	}
}

// Assign replaces the assignment. Offset of each is where it starts: [OffsetBeginning], [OffsetEnd], [OffsetReset], [OffsetCommitted], or an offset.
// Partitions kept from before go on where they are when it is OffsetReset or OffsetCommitted. No partitions: none is assigned any more.
func (o *Consumer) Assign(parts ...TopicPartition) error {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return errClosed("the consumer")
	}
	defer c.leave()
	raw, err := c.c.rawParts(parts)
	if err != nil {
		return err
	}
	var e *C.kc_error
	code := C.kc_consumer_assign(c.h, first(raw), C.sizeof_kc_topic_partition, C.size_t(len(raw)), &e)
	if code == C.KC_OK {
		c.drop(func(place TopicPartition) bool {
			for _, p := range parts {
				if p.Topic == place.Topic && p.Partition == place.Partition {
					return p.Offset == OffsetReset || p.Offset == OffsetCommitted
				}
			}
			return false
		})
	}
	return takeError(code, e, "assigning partitions")
}

// each calls C for partitions, and gives them back as it left them; the error is the first of theirs.
func (o *Consumer) each(parts []TopicPartition, what string, call func(h *C.kc_consumer, p *C.kc_topic_partition,
	n C.size_t) C.kc_err) ([]TopicPartition, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return nil, errClosed("the consumer")
	}
	defer c.leave()
	raw, err := c.c.rawParts(parts)
	if err != nil || len(raw) == 0 {
		return nil, err
	}
	code := call(c.h, first(raw), C.size_t(len(raw)))
	out := c.c.partsFrom(raw, what)
	if err := firstOf(out); err != nil {
		return out, err
	}
	return out, codeError(code, what)
}

// Seek moves positions: takes effect before the next poll returns.
func (o *Consumer) Seek(parts ...TopicPartition) error {
	_, err := o.each(parts, "seeking", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		code := C.kc_consumer_seek(h, p, C.sizeof_kc_topic_partition, n)
		o.c.drop(func(place TopicPartition) bool {
			for _, p := range parts {
				if p.Topic == place.Topic && p.Partition == place.Partition {
					return false
				}
			}
			return true
		})
		return code
	})
	return err
}

// Pause has no records of these delivered until they are resumed, but for what Records is going over already.
func (o *Consumer) Pause(parts ...TopicPartition) error {
	_, err := o.each(parts, "pausing", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		return C.kc_consumer_pause(h, p, C.sizeof_kc_topic_partition, n)
	})
	return err
}

// Resume ends a Pause.
func (o *Consumer) Resume(parts ...TopicPartition) error {
	_, err := o.each(parts, "resuming", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		return C.kc_consumer_resume(h, p, C.sizeof_kc_topic_partition, n)
	})
	return err
}

// Position gives, in Offset, the next offset that a poll will deliver; [OffsetReset] while it is being looked up.
func (o *Consumer) Position(parts ...TopicPartition) ([]TopicPartition, error) {
	return o.each(parts, "position", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		return C.kc_consumer_position(h, p, C.sizeof_kc_topic_partition, n)
	})
}

// Lag gives, in Offset, how many offsets there are from the position to the end, as the last fetch told it; -1: not known yet.
func (o *Consumer) Lag(parts ...TopicPartition) ([]TopicPartition, error) {
	return o.each(parts, "lag", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		return C.kc_consumer_lag(h, p, C.sizeof_kc_topic_partition, n)
	})
}

// Processed marks records as processed, up to before Offset, for a consumer made [WithExplicitProcessed].
func (o *Consumer) Processed(parts ...TopicPartition) error {
	_, err := o.each(parts, "marking as processed", func(h *C.kc_consumer, p *C.kc_topic_partition, n C.size_t) C.kc_err {
		return C.kc_consumer_processed(h, p, C.sizeof_kc_topic_partition, n)
	})
	return err
}

// ProcessedRecord marks a record, and those before it, as processed.
func (o *Consumer) ProcessedRecord(r *Record) error {
	return o.Processed(TopicPartition{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset + 1, LeaderEpoch: r.LeaderEpoch})
}

// Commit commits offsets to the group (of each the next one to be consumed) and waits for the outcome. None: all that is processed, and what was given
// out last: the batch of the last poll, or the records of Records up to the one that its loop is at ([WithExplicitProcessed]: what is processed alone).
// Per-item errors are in the result's Err; the error is the first of them.
func (o *Consumer) Commit(ctx context.Context, offsets ...TopicPartition) ([]TopicPartition, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return nil, errClosed("the consumer")
	}
	defer c.leave()
	if len(offsets) > 0 {
		return c.commit(ctx, offsets)
	}
	all, err := c.commit(ctx, nil)
	last, ok := c.pending()
	if err != nil || !ok {
		return all, err
	}
	out, err := c.commit(ctx, []TopicPartition{last})
	for _, p := range all {
		if p.Topic != last.Topic || p.Partition != last.Partition {
			out = append(out, p)
		}
	}
	return out, err
}

// commit is Commit of these offsets; none: of what C knows to be processed.
func (c *consumer) commit(ctx context.Context, offsets []TopicPartition) ([]TopicPartition, error) {
	var m cmem
	defer m.free()
	raw := alloc[C.kc_offset](&m, len(offsets))
	for i, p := range offsets {
		topic, err := c.c.topic(p.Topic)
		if err != nil {
			return nil, err
		}
		raw[i] = C.kc_offset{topic: topic, partition: C.int32_t(p.Partition), offset: C.int64_t(p.Offset), leader_epoch: C.int32_t(p.LeaderEpoch)}
		if p.Metadata != "" {
			raw[i].metadata = C.kc_bytes{p: unsafe.Pointer(m.string(p.Metadata)), size: C.size_t(len(p.Metadata))}
		}
	}
	return c.offsetsOf(ctx, "committing", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_consumer_commit_start(c.h, first(raw), C.sizeof_kc_offset, C.size_t(len(raw)), opaque, op, e)
	})
}

// CommitRecord commits that a record, and those before it in its partition, were processed.
func (o *Consumer) CommitRecord(ctx context.Context, r *Record) error {
	_, err := o.Commit(ctx, TopicPartition{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset + 1, LeaderEpoch: r.LeaderEpoch})
	return err
}

// offsetsOf runs an operation whose results are offsets.
func (c *consumer) offsetsOf(ctx context.Context, what string, start func(opaque C.uint64_t, op **C.kc_op,
	e **C.kc_error) C.kc_err) ([]TopicPartition, error) {
	var out []TopicPartition
	err := c.c.run(ctx, what, start, func(op *C.kc_op) { out = c.c.takeOffsets(op, what) })
	return out, err
}

func (c *client) takeOffsets(op *C.kc_op, what string) []TopicPartition {
	n := C.kc_op_result_offsets(op, nil, C.sizeof_kc_topic_partition, 0)
	if n == 0 {
		return nil
	}
	raw := make([]C.kc_topic_partition, int(n))
	C.kc_op_result_offsets(op, &raw[0], C.sizeof_kc_topic_partition, n)
	return c.partsFrom(raw, what)
}

// Committed gives the group's committed offsets, with their metadata, of any partitions; Offset -1: none is committed.
func (o *Consumer) Committed(ctx context.Context, parts ...TopicPartition) ([]TopicPartition, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return nil, errClosed("the consumer")
	}
	defer c.leave()
	raw, err := c.c.rawParts(parts)
	if err != nil {
		return nil, err
	}
	var out []TopicPartition
	err = c.c.run(ctx, "asking for committed offsets", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_consumer_committed_start(c.h, first(raw), C.sizeof_kc_topic_partition, C.size_t(len(raw)), opaque, op, e)
	}, func(op *C.kc_op) {
		n := int(C.kc_op_result_committed(op, nil, C.sizeof_kc_offset, 0))
		var m cmem
		defer m.free()
		got := alloc[C.kc_offset](&m, n)
		C.kc_op_result_committed(op, first(got), C.sizeof_kc_offset, C.size_t(n))
		for _, g := range got {
			p := TopicPartition{Topic: c.c.topicName(g.topic), Partition: int32(g.partition), Offset: int64(g.offset), LeaderEpoch: int32(g.leader_epoch)}
			p.Metadata = C.GoStringN((*C.char)(g.metadata.p), C.int(g.metadata.size))
			p.Err = codeError(g.err, "the committed offset of "+p.Topic)
			out = append(out, p)
		}
	})
	return out, err
}

// Offsets looks offsets up, of any partitions: Offset in is [OffsetBeginning], [OffsetEnd] or a timestamp in milliseconds since 1970; out the
// offset, -1 when there is none at or after the timestamp.
func (o *Consumer) Offsets(ctx context.Context, parts ...TopicPartition) ([]TopicPartition, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return nil, errClosed("the consumer")
	}
	defer c.leave()
	raw, err := c.c.rawParts(parts)
	if err != nil {
		return nil, err
	}
	return c.offsetsOf(ctx, "looking offsets up", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_consumer_offsets_start(c.h, first(raw), C.sizeof_kc_topic_partition, C.size_t(len(raw)), opaque, op, e)
	})
}

// AwaitAssigned waits until the group has given this member its partitions, if only none; polling may go on meanwhile. When ctx ends first, the
// error says what the member waits for.
func (o *Consumer) AwaitAssigned(ctx context.Context) error {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return errClosed("the consumer")
	}
	defer c.leave()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		var e *C.kc_error
		code := C.kc_consumer_await_assigned(c.h, 0, &e)
		if code != C.KC_TIMED_OUT && code != C.KC_WOKEN {
			return takeError(code, e, "waiting for partitions")
		}
		C.kc_error_free(e)
		select {
		case <-time.After(pause):
		case <-c.over:
			return errClosed("the consumer")
		case <-ctx.Done():
			what := "waiting for partitions"
			if why, err := o.Why(); err == nil && len(why) > 0 {
				what += ": " + why[0].Text
			}
			return ctxError(ctx, NotPersisted, what)
		}
	}
}

// Member is the membership at this moment: its generation, -1 while there is none, and member id.
func (o *Consumer) Member() (generation int32, id string) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return -1, ""
	}
	defer c.leave()
	var g C.int32_t
	var m cmem
	defer m.free()
	const size = 512
	text := m.bytes(size)
	C.kc_consumer_member(c.h, &g, (*C.char)(text), size)
	return int32(g), C.GoString((*C.char)(text))
}

// Why is what a partition waits for. With a subscription the first is the membership itself: Topic "", Partition -1.
type Why struct {
	Topic     string
	Partition int32
	State     int32 // kc_why.state in include/kclient/consumer.h
	Broker    int32 // on whom; -1: nobody
	Since     time.Duration
	LastError Code // 0: the last answer was good
	Text      string
}

// Why tells what each partition of the assignment waits for, since when, and on whom.
func (o *Consumer) Why() ([]Why, error) {
	c := o.c
	defer runtime.KeepAlive(o)
	if !c.enter() {
		return nil, errClosed("the consumer")
	}
	defer c.leave()
	for max := 64; ; {
		raw := make([]C.kc_why, max)
		var n C.size_t
		if code := C.kc_consumer_why(c.h, &raw[0], C.sizeof_kc_why, C.size_t(max), &n); code != C.KC_OK {
			return nil, codeError(code, "asking what a consumer waits for")
		}
		if int(n) > max {
			max = int(n)
			continue
		}
		all := make([]Why, int(n))
		for i, w := range raw[:n] {
			all[i] = Why{c.c.topicName(w.topic), int32(w.partition), int32(w.state), int32(w.broker), time.Duration(w.since_us) * time.Microsecond,
				Code(w.last_error),
				C.GoString(&raw[i].text[0])}
		}
		return all, nil
	}
}
