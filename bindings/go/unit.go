package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"math"
)

// unit is a run of records that cross into C together. Each record's opaque is its unit's slot and its place in it, so that its report finds it.
type unit struct {
	owner *Producer // keeps the producer from being collected while something is under way
	*packet
	count   int
	sent    int // of count: in C, or refused
	left    int // reports that are still to come
	slot    uint32
	done    []func(Report, error) // of SendAsync, by place
	reports []Report              // of a batch, by place
	whole   func()                // of a batch: all reports are there
}

// packet is what C gets: records without pointers, and the arena that they point into. It is used again once C has taken all.
type packet struct {
	flats []C.kc_flat
	arena []byte
}

const (
	unitRecords  = 512       // of SendAsync
	unitBytes    = 128 << 10 // the same
	packetsKept  = 4
	donesKept    = 256
	packetBytes  = 1 << 20 // bigger ones are not kept
	arenaMax     = math.MaxUint32
	unitsWaiting = 8 // as many may wait for room in the producer's queue before SendAsync waits too
)

func (u *unit) isFull() bool { return len(u.flats) >= unitRecords || len(u.arena) >= unitBytes }

// fits tells whether the record may go into the unit at all: places are 32 bits.
func (u *unit) fits(r *Record) bool { return u.size(r)+uint64(len(u.arena)) <= arenaMax }

func (*unit) size(r *Record) uint64 {
	n := uint64(len(r.Key)) + uint64(len(r.Value)) + 16
	for i := range r.Headers {
		n += 8 + uint64(len(r.Headers[i].Name)) + uint64(len(r.Headers[i].Value))
	}
	return n
}

func (p *packet) put(b []byte) (C.uint32_t, C.int32_t) {
	if b == nil {
		return 0, -1
	}
	at := C.uint32_t(len(p.arena))
	p.arena = append(p.arena, b...)
	return at, C.int32_t(len(b))
}

// add appends a record, which fits.
func (u *unit) add(topic C.int32_t, r *Record, flags C.uint32_t, timeout C.int64_t, reported bool) {
	f := C.kc_flat{topic: topic, flags: flags, timeout_us: timeout}
	if r.HasPartition {
		f.partition = C.int32_t(r.Partition)
		f.flags |= C.KC_HAS_PARTITION
	}
	if us := C.int64_t(r.Timeout.Microseconds()); us > 0 && (timeout == 0 || us < timeout) {
		f.timeout_us = us
	}
	if !r.Timestamp.IsZero() {
		f.timestamp_ms = C.int64_t(r.Timestamp.UnixMilli())
		f.flags |= C.KC_HAS_TIMESTAMP
	}
	if reported {
		f.opaque = C.uint64_t(u.slot)<<32 | C.uint64_t(len(u.flats))
	} else {
		f.flags |= C.KC_NO_REPORT
	}
	f.key_at, f.key_size = u.put(r.Key)
	f.value_at, f.value_size = u.put(r.Value)
	if len(r.Headers) > 0 {
		u.addHeaders(&f, r.Headers)
	}
	if !r.GUID.IsZero() && !hasGUID(r) {
		f.guid_at = C.uint32_t(len(u.arena)) + 1
		u.arena = append(u.arena, r.GUID[:]...)
	}
	u.flats = append(u.flats, f)
	u.count++
}

func (p *packet) addHeaders(f *C.kc_flat, headers []Header) {
	f.header_count = C.uint32_t(len(headers))
	f.headers_at = C.uint32_t(len(p.arena))
	for i := range headers {
		h := &headers[i]
		p.arena = binary.NativeEndian.AppendUint32(p.arena, uint32(len(h.Name)))
		if h.Value == nil {
			p.arena = binary.NativeEndian.AppendUint32(p.arena, math.MaxUint32)
		} else {
			p.arena = binary.NativeEndian.AppendUint32(p.arena, uint32(len(h.Value)))
		}
		p.arena = append(p.arena, h.Name...)
		p.arena = append(p.arena, h.Value...)
	}
}

// hasGUID: a consumed record that is sent on has its id in both places.
func hasGUID(r *Record) bool {
	for i := range r.Headers {
		if r.Headers[i].Name == "guid" && string(r.Headers[i].Value) == string(r.GUID[:]) {
			return true
		}
	}
	return false
}
