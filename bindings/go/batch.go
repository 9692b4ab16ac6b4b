package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"iter"
	"time"
	"unsafe"
)

// Batch is a run of records of one partition, as they were fetched together. That of [Consumer.PollBatch] holds a copy of their bytes, made once, in
// Go's memory: keep its records as long as you like. That of [Consumer.PollBorrowed] shows the library's own memory until Release.
type Batch struct {
	Topic         string
	Partition     int32
	HighWatermark int64 // as of the fetch; -1 unknown
	NextOffset    int64 // the position behind it: to commit it, for one
	LeaderEpoch   int32 // -1 unknown

	views   []C.kc_view
	span    []byte
	headers []C.struct_kcgo_header // of all records, one behind the other
	firsts  []int32                // of each record, in headers; nil: none has any
	event   *C.kc_event            // borrowed
}

// Len is the number of records.
func (b *Batch) Len() int { return len(b.views) }

// Offset is that of the record at index i.
func (b *Batch) Offset(i int) int64 { return int64(b.views[i].offset) }

// upTo is the position behind its first n records, of which there is one at least.
func (b *Batch) upTo(n int) int64 {
	if n == len(b.views) {
		return b.NextOffset
	}
	return int64(b.views[n-1].offset) + 1
}

// Key of the record at index i, nil: null.
func (b *Batch) Key(i int) []byte {
	return b.bytes(uint32(b.views[i].key_at), int32(b.views[i].key_size))
}

// Value of the record at index i, nil: null.
func (b *Batch) Value(i int) []byte {
	return b.bytes(uint32(b.views[i].value_at), int32(b.views[i].value_size))
}

func (b *Batch) bytes(at uint32, size int32) []byte {
	if size < 0 {
		return nil
	}
	end := int(at) + int(size)
	return b.span[int(at):end:end]
}

// Record is the one at index i. Its key, value and header values are the batch's.
func (b *Batch) Record(i int) Record {
	v := &b.views[i]
	r := Record{Topic: b.Topic, Partition: b.Partition, Offset: int64(v.offset), LeaderEpoch: b.LeaderEpoch,
		Timestamp: time.UnixMilli(int64(v.timestamp_ms)),
		Key:       b.bytes(uint32(v.key_at), int32(v.key_size)), Value: b.bytes(uint32(v.value_at), int32(v.value_size))}
	if v.header_count > 0 {
		b.addHeaders(&r, int(b.firsts[i]), int(v.header_count))
	}
	return r
}

func (b *Batch) addHeaders(r *Record, first, count int) {
	r.Headers = make([]Header, count)
	for i := range r.Headers {
		h := &b.headers[first+i]
		r.Headers[i] = Header{string(b.bytes(uint32(h.name_at), int32(h.name_size))), b.bytes(uint32(h.value_at), int32(h.value_size))}
		if r.Headers[i].Name == "guid" && len(r.Headers[i].Value) == len(r.GUID) {
			r.GUID = GUID(r.Headers[i].Value)
		}
	}
}

// All goes over the records.
func (b *Batch) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for i := range b.views {
			if !yield(b.Record(i)) {
				return
			}
		}
	}
}

// Release gives the memory of a borrowed batch back: its records' bytes must not be looked at any more. It may be called from any goroutine, once or
// more; for a batch that is a copy it does nothing. Borrowed batches that are not released hold the client's memory budget, until no more is
// fetched.
func (b *Batch) Release() {
	if b.event != nil {
		C.kc_event_free(b.event)
		b.event, b.views, b.span, b.headers, b.firsts = nil, nil, nil, nil, nil
	}
}

// batchOf makes a batch that shows the event's memory.
func (c *consumer) batchOf(e *C.struct_kcgo_event) *Batch {
	b := &Batch{Topic: c.c.topicName(e.topic), Partition: int32(e.partition), HighWatermark: int64(e.high_watermark), NextOffset: int64(e.offset),
		LeaderEpoch: int32(e.leader_epoch), views: unsafe.Slice(e.views, int(e.count)), span: unsafe.Slice((*byte)(e.span), int(e.span_size))}
	total := 0
	for i := range b.views {
		total += int(b.views[i].header_count)
	}
	if total > 0 {
		b.headers = make([]C.struct_kcgo_header, total)
		b.firsts = make([]int32, len(b.views))
		C.kcgo_headers(e.event, &b.headers[0], C.size_t(total))
		at := 0
		for i := range b.views {
			b.firsts[i] = int32(at)
			at += int(b.views[i].header_count)
		}
	}
	return b
}

// copyBytes moves the records' bytes into Go's memory, at once for all.
func (b *Batch) copyBytes() { b.span = append([]byte(nil), b.span...) }

// copyViews does so with their places.
func (b *Batch) copyViews() { b.views = append([]C.kc_view(nil), b.views...) }

// tail is what is left of a batch from index i on.
func (b *Batch) tail(i int) *Batch {
	t := *b
	t.views = b.views[i:]
	if b.firsts != nil {
		t.firsts = b.firsts[i:]
	}
	return &t
}
