package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"time"
	"unsafe"
)

// GUIDState is what is known of an id.
type GUIDState int32

const (
	GUIDUnknown GUIDState = C.KC_GUID_UNKNOWN // no record has it, or it is older than message.guid.window.ms
	GUIDFound   GUIDState = C.KC_GUID_FOUND
	GUIDPending GUIDState = C.KC_GUID_PENDING // stored, but not (yet) on all in-sync replicas
)

// GUIDPlace is where the record with an id is.
type GUIDPlace struct {
	GUID        GUID
	State       GUIDState
	Partition   int32 // -1: unknown
	Offset      int64 // -1: unknown
	LeaderEpoch int32 // -1: not told
	Err         error // of an unknown one: a partition that may have it could not be asked, and why
}

// LookupGUIDs finds records of a topic by their ids, at most 1000 a call; partitions nil: in all. At least one place an id, in the order of the ids;
// more than one where several partitions have it.
func (a *Admin) LookupGUIDs(ctx context.Context, topic string, guids []GUID, partitions ...int32) ([]GUIDPlace, error) {
	var m cmem
	defer m.free()
	name, parts := m.string(topic), m.numbers(partitions)
	var flat []byte
	for _, g := range guids {
		flat = append(flat, g[:]...)
	}
	raw := (*C.uint8_t)(C.CBytes(flat))
	defer C.free(unsafe.Pointer(raw))
	var out []GUIDPlace
	err := a.run(ctx, "looking ids up", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_lookup_guids_start(a.client.c.h, name, raw, C.size_t(len(guids)), parts, C.size_t(len(partitions)), callTimeout(ctx), opaque, op,
			e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_guids(op)
		defer C.kc_guid_list_free(l)
		for i := C.size_t(0); l != nil && i < C.kc_guid_list_count(l); i++ {
			var p C.kc_guid_place
			C.kc_guid_list_get(l, i, &p)
			out = append(out, GUIDPlace{guids[p.guid], GUIDState(p.state), int32(p.partition), int64(p.offset), int32(p.leader_epoch), codeError(p.err,
				"looking ids up in "+topic)})
		}
	})
	return out, err
}

// GUIDStats is what the index of a partition's ids holds, and what it has done since it was opened.
type GUIDStats struct {
	Partition, Leader, LeaderEpoch         int32
	Err                                    error
	From, End                              int64 // the offsets that it knows the records of
	Entries, Runs                          int64 // ids; sorted files of them
	DiskBytes, MemoryBytes                 int64
	Window                                 time.Duration
	Finds, RunReads, Hits, Flushes, Merges int64
	Forgotten                              int64 // ids that went with their records within the window
}

// GUIDStats gives the figures of a topic's partitions, each as its leader says.
func (a *Admin) GUIDStats(ctx context.Context, topic string) ([]GUIDStats, error) {
	var m cmem
	defer m.free()
	name := m.string(topic)
	var out []GUIDStats
	err := a.run(ctx, "asking for the figures of ids", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_guid_stats_start(a.client.c.h, name, callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_guids(op)
		defer C.kc_guid_list_free(l)
		for i := C.size_t(0); l != nil && i < C.kc_guid_list_partition_count(l); i++ {
			var p C.kc_guid_partition
			C.kc_guid_list_partition(l, i, &p)
			out = append(out, GUIDStats{int32(p.partition), int32(p.leader), int32(p.leader_epoch), itemError(p.err, p.message, fmt.Sprintf("%s[%d]", topic,
				p.partition)),
				int64(p.from), int64(p.end), int64(p.entries), int64(p.runs), int64(p.disk_bytes), int64(p.memory_bytes),
				time.Duration(p.window_ms) * time.Millisecond,
				int64(p.finds), int64(p.run_reads), int64(p.hits), int64(p.flushes), int64(p.merges), int64(p.forgotten)})
		}
	})
	return out, err
}
