package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"time"
)

// Event is what [Consumer.Poll] gives: *[Batch], *[Assigned], *[Revoked], *[Lost], *[PartitionEnd], *[ConsumerError].
type Event interface{ isEvent() }

func (*Batch) isEvent()         {}
func (*Assigned) isEvent()      {}
func (*Revoked) isEvent()       {}
func (*Lost) isEvent()          {}
func (*PartitionEnd) isEvent()  {}
func (*ConsumerError) isEvent() {}

// Assigned: the partitions are the consumer's from now on, besides those that it has; perhaps none. Nothing of them is delivered before the next
// poll, or Ack, so that offsets kept elsewhere can be sought first.
type Assigned struct {
	Partitions []TopicPartition
	*handover
}

// Revoked: the partitions are to be given up. Offsets may be committed until the next poll, or Ack.
type Revoked struct {
	Partitions []TopicPartition
	*handover
}

// Lost: the partitions are no longer the consumer's; another member may have them already.
type Lost struct{ Partitions []TopicPartition }

// PartitionEnd: the end was reached (with enable.partition.eof).
type PartitionEnd struct {
	Topic     string
	Partition int32
	Offset    int64
}

// ConsumerError is told once; the consumer goes on.
type ConsumerError struct {
	Topic     string // "": none in particular
	Partition int32
	Offset    int64 // where, or -1
	// PositionBefore, with ErrDataLost: records from Offset up to before it were consumed and are gone from the log. Else -1.
	PositionBefore int64
	Err            *Error
}

func (e *ConsumerError) Error() string { return e.Err.Error() }

// Unwrap gives the [Error].
func (e *ConsumerError) Unwrap() error { return e.Err }

// handover is the event behind an Assigned or a Revoked.
type handover struct{ event *C.kc_event }

// Ack tells the group that the application has done what it had to. The next poll does so too. [ErrLost]: too late, the partitions are lost.
func (h *handover) Ack() error {
	defer runtime.KeepAlive(h)
	return codeError(C.kc_event_ack(h.event), "acknowledging")
}

// Deadline is how long there still is to acknowledge, from now; false: no limit.
func (h *handover) Deadline() (time.Duration, bool) {
	defer runtime.KeepAlive(h)
	us := C.kc_event_deadline_us(h.event)
	return time.Duration(us) * time.Microsecond, us != C.KC_FOREVER
}

// newHandover holds the event as long as the application holds the Assigned or Revoked: freeing it acknowledges.
func newHandover(e *C.kc_event) *handover {
	h := &handover{C.kc_event_ref(e)}
	runtime.SetFinalizer(h, func(h *handover) { C.kc_event_free(h.event) })
	return h
}

func (c *consumer) partitionsOf(e *C.kc_event) []TopicPartition {
	n := C.kc_event_partitions(e, nil, C.sizeof_kc_topic_partition, 0)
	if n == 0 {
		return nil
	}
	raw := make([]C.kc_topic_partition, int(n))
	C.kc_event_partitions(e, &raw[0], C.sizeof_kc_topic_partition, n)
	return c.c.partsFrom(raw, "assignment")
}

// other makes an event that is not records. nil: of a kind that is not known here.
func (c *consumer) other(e *C.struct_kcgo_event) Event {
	switch e.kind {
	case C.KC_EVENT_ASSIGNED:
		return &Assigned{c.partitionsOf(e.event), newHandover(e.event)}
	case C.KC_EVENT_REVOKED:
		return &Revoked{c.partitionsOf(e.event), newHandover(e.event)}
	case C.KC_EVENT_LOST:
		return &Lost{c.partitionsOf(e.event)}
	case C.KC_EVENT_PARTITION_END:
		return &PartitionEnd{c.c.topicName(e.topic), int32(e.partition), int64(e.offset)}
	case C.KC_EVENT_ERROR:
		return &ConsumerError{c.c.topicName(e.topic), int32(e.partition), int64(e.offset), int64(e.position_before),
			borrowedError(C.kc_event_error(e.event))}
	}
	return nil
}
