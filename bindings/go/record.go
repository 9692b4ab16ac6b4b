package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"time"
)

// Header is a record's header.
type Header struct {
	Name  string
	Value []byte // nil: null
}

// Record is one record: to be sent, or as it was consumed.
type Record struct {
	Topic string
	// Partition of a consumed record. To be sent it counts only with HasPartition; else the partitioner chooses.
	Partition    int32
	HasPartition bool
	Offset       int64     // consumed
	LeaderEpoch  int32     // consumed; -1 unknown
	Timestamp    time.Time // to be sent: zero is now
	Key, Value   []byte    // nil: Kafka's null
	Headers      []Header
	// Timeout is the record's own limit, when it is sent; 0: delivery.timeout.ms.
	Timeout time.Duration
	// GUID is the record's id, in its header `guid` (which Headers of a consumed record has too). To be sent: zero is none, or, with
	// enable.guid, one that the producer makes.
	GUID GUID
}

// Header gives the last header of that name, and whether there is one.
func (r *Record) Header(name string) ([]byte, bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Name == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// TopicPartition is a partition, with what the call at hand wants or tells about it.
type TopicPartition struct {
	Topic       string
	Partition   int32
	Offset      int64  // or one of the special offsets, or a timestamp, as the call says
	LeaderEpoch int32  // of the record before Offset; 0 or -1: unknown
	Metadata    string // the application's, of a committed offset
	Err         error  // out: what is wrong with this one
}

func (p TopicPartition) String() string {
	return fmt.Sprintf("%s[%d]@%s", p.Topic, p.Partition, offsetText(p.Offset))
}

// Special offsets.
const (
	OffsetBeginning int64 = C.KC_OFFSET_BEGINNING
	OffsetEnd       int64 = C.KC_OFFSET_END
	OffsetReset     int64 = C.KC_OFFSET_RESET     // as auto.offset.reset says
	OffsetCommitted int64 = C.KC_OFFSET_COMMITTED // where the group has committed, else OffsetReset
)

func offsetText(o int64) string {
	switch o {
	case OffsetBeginning:
		return "beginning"
	case OffsetEnd:
		return "end"
	case OffsetReset:
		return "reset"
	case OffsetCommitted:
		return "committed"
	}
	return fmt.Sprint(o)
}

// ReportFlag tells more about a record that was sent.
type ReportFlag uint32

const (
	Duplicate     ReportFlag = C.KC_REPORT_DUPLICATE      // the broker had it already, and stored nothing: Offset is the first copy's, or -1
	OtherPayload  ReportFlag = C.KC_REPORT_OTHER_PAYLOAD  // a duplicate by its id whose first copy has another key or value, which stays
	OffsetUnknown ReportFlag = C.KC_REPORT_OFFSET_UNKNOWN // it is stored, but where is not known (any more)
	Deduped       ReportFlag = C.KC_REPORT_DEDUPED        // the topic looks ids up: where the record has one, it is stored once
	PerhapsOwn    ReportFlag = C.KC_REPORT_PERHAPS_OWN    // a duplicate, perhaps of an earlier, unanswered attempt of this very send
)

func (f ReportFlag) String() string {
	var names []string
	for _, n := range []struct {
		flag ReportFlag
		name string
	}{{Duplicate, "duplicate"}, {OtherPayload, "other payload"}, {OffsetUnknown, "offset unknown"}, {Deduped, "deduped"}, {PerhapsOwn, "perhaps own"}} {
		if f&n.flag != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ", ")
}

// Report is the outcome of one record that was sent.
type Report struct {
	Topic     string
	Partition int32
	Offset    int64     // -1: unknown (acks=0, failed)
	Timestamp time.Time // as stored
	Outcome   Outcome
	Flags     ReportFlag
	Err       error // nil: it is in the log, as acks asked
	// Attempts are the tries that went wrong, oldest first, also where a later one succeeded: what a retry was for. Long chains keep the first and the last
	// ones.
	Attempts []Attempt
}

// Duplicate tells whether the broker had the record already.
func (r *Report) Duplicate() bool { return r.Flags&Duplicate != 0 }

// rawParts makes C's form of partitions; the topics' names become numbers.
func (c *client) rawParts(parts []TopicPartition) ([]C.kc_topic_partition, error) {
	raw := make([]C.kc_topic_partition, len(parts), len(parts)+1)
	for i, p := range parts {
		topic, err := c.topic(p.Topic)
		if err != nil {
			return nil, err
		}
		raw[i] = C.kc_topic_partition{topic: topic, partition: C.int32_t(p.Partition), offset: C.int64_t(p.Offset), leader_epoch: C.int32_t(p.LeaderEpoch)}
	}
	return raw, nil
}

// partsFrom is the way back, with per-item errors.
func (c *client) partsFrom(raw []C.kc_topic_partition, what string) []TopicPartition {
	parts := make([]TopicPartition, len(raw))
	for i, r := range raw {
		parts[i] = TopicPartition{Topic: c.topicName(r.topic), Partition: int32(r.partition), Offset: int64(r.offset), LeaderEpoch: int32(r.leader_epoch)}
		if r.err != C.KC_OK {
			parts[i].Err = codeError(r.err, fmt.Sprintf("%s: %s[%d]", what, parts[i].Topic, parts[i].Partition))
		}
	}
	return parts
}

func firstOf(parts []TopicPartition) error {
	for _, p := range parts {
		if p.Err != nil {
			return p.Err
		}
	}
	return nil
}
