package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// Broker is a node that is known to the cluster.
type Broker struct {
	ID     int32
	Host   string
	Port   int32
	Rack   string // "": none
	Fenced bool   // registered, but without a live session at the controller
}

// Partition is one of a topic's.
type Partition struct {
	ID, Leader, LeaderEpoch         int32 // Leader -1: none
	Replicas, ISR, Offline          []int32
	LogStart, HighWatermark, LogEnd int64 // the leader's, from DescribeTopic; -1 unknown
	Err                             error
}

// Topic is a topic with its partitions.
type Topic struct {
	Name       string
	ID         GUID
	Internal   bool
	Partitions []Partition
	Err        error
}

// Cluster is the cluster at one moment.
type Cluster struct {
	ID         string // "" unknown
	Controller int32  // -1 unknown
	Brokers    []Broker
	Topics     []Topic
}

// DescribeCluster gives brokers, controller and all topics, without their offsets.
func (a *Admin) DescribeCluster(ctx context.Context) (*Cluster, error) { return a.describe(ctx, "") }

// DescribeTopic gives one topic, with the offsets of its partitions. Nothing is created by asking.
func (a *Admin) DescribeTopic(ctx context.Context, name string) (*Topic, error) {
	cluster, err := a.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(cluster.Topics) == 0 {
		return nil, newError(ErrUnknownTopicOrPartition, NotPersisted, "describing %s: there is no such topic", name)
	}
	return &cluster.Topics[0], cluster.Topics[0].Err
}

func (a *Admin) describe(ctx context.Context, topic string) (*Cluster, error) {
	var m cmem
	defer m.free()
	name := m.text(topic)
	out := &Cluster{}
	err := a.run(ctx, "describing the cluster", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_describe_start(a.client.c.h, name, callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		info := C.kc_op_result_cluster(op)
		defer C.kc_cluster_info_free(info)
		if info != nil {
			out.read(info)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (out *Cluster) read(info *C.kc_cluster_info) {
	out.ID, out.Controller = C.GoString(C.kc_cluster_info_id(info)), int32(C.kc_cluster_info_controller(info))
	for i := C.size_t(0); i < C.kc_cluster_info_broker_count(info); i++ {
		var b C.kc_broker_info
		C.kc_cluster_info_broker(info, i, &b)
		out.Brokers = append(out.Brokers, Broker{int32(b.id), C.GoString(b.host), int32(b.port), C.GoString(b.rack), b.fenced != 0})
	}
	for i := C.size_t(0); i < C.kc_cluster_info_topic_count(info); i++ {
		var t C.kc_topic_info
		C.kc_cluster_info_topic(info, i, &t)
		topic := Topic{Name: C.GoString(t.name), Internal: t.internal != 0}
		topic.ID = *(*GUID)(unsafe.Pointer(&t.id))
		topic.Err = codeError(t.err, "describing "+topic.Name)
		for k := C.size_t(0); k < t.partition_count; k++ {
			var p C.kc_partition_info
			C.kc_cluster_info_partition(info, i, k, &p)
			topic.Partitions = append(topic.Partitions, Partition{int32(p.partition), int32(p.leader), int32(p.leader_epoch), numbers(p.replicas,
				p.replica_count),
				numbers(p.isr, p.isr_count), numbers(p.offline, p.offline_count), int64(p.log_start), int64(p.high_watermark), int64(p.log_end),
				codeError(p.err, "describing "+topic.Name)})
		}
		out.Topics = append(out.Topics, topic)
	}
}

// numbers copies a C array.
func numbers(p *C.int32_t, n C.size_t) []int32 {
	if n == 0 {
		return nil
	}
	return append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(p)), int(n))...)
}

// Election is the kind of one.
type Election int32

const (
	ElectPreferred Election = C.KC_ELECT_PREFERRED // the first replica of each, where it is in sync
	ElectUnclean   Election = C.KC_ELECT_UNCLEAN   // any live replica, where none in sync is left: records that only the others had are lost
)

// ElectLeaders elects leaders of partitions; none: of all that need it. Where the wanted one leads already, the item's Err is
// [ErrElectionNotNeeded], and the call succeeds.
func (a *Admin) ElectLeaders(ctx context.Context, election Election, parts ...TopicPartition) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	raw := alloc[C.kc_partition_item](&m, len(parts))
	for i, p := range parts {
		raw[i].topic, raw[i].partition = m.string(p.Topic), C.int32_t(p.Partition)
	}
	return a.items(ctx, "electing leaders", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_elect_leaders_start(a.client.c.h, C.int32_t(election), first(raw), C.sizeof_kc_partition_item, C.size_t(len(raw)),
			callTimeout(ctx), opaque, op, e)
	})
}

// Reassignment is where a partition is to be, or, as [Admin.ListReassignments] gives it, how far its move is.
type Reassignment struct {
	Topic            string
	Partition        int32
	Replicas         []int32 // to be: the preferred leader first; nil: stop its move. Of a move: all that hold it now or shall
	Adding, Removing []int32 // of a move
}

// AlterReassignments has partitions moved onto other brokers, or stops that. No error says that the moves began: ListReassignments shows them until
// they are done.
func (a *Admin) AlterReassignments(ctx context.Context, moves ...Reassignment) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	raw := alloc[C.kc_partition_item](&m, len(moves))
	for i, p := range moves {
		raw[i].topic, raw[i].partition = m.string(p.Topic), C.int32_t(p.Partition)
		if p.Replicas != nil {
			raw[i].replicas, raw[i].replica_count = m.numbers(p.Replicas), C.size_t(len(p.Replicas))
		}
	}
	return a.items(ctx, "moving partitions", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_alter_reassignments_start(a.client.c.h, first(raw), C.sizeof_kc_partition_item, C.size_t(len(raw)), callTimeout(ctx), opaque, op,
			e)
	})
}

// ListReassignments gives the partitions that are being moved.
func (a *Admin) ListReassignments(ctx context.Context) ([]Reassignment, error) {
	var out []Reassignment
	err := a.run(ctx, "listing moves", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_list_reassignments_start(a.client.c.h, callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_reassignments(op)
		defer C.kc_reassignment_list_free(l)
		for i := C.size_t(0); l != nil && i < C.kc_reassignment_list_count(l); i++ {
			var r C.kc_reassignment
			C.kc_reassignment_list_get(l, i, &r)
			out = append(out, Reassignment{C.GoString(r.topic), int32(r.partition), numbers(r.replicas, r.replica_count), numbers(r.adding, r.adding_count),
				numbers(r.removing, r.removing_count)})
		}
	})
	return out, err
}

// UnregisterBroker removes a broker that will not come back from the cluster's metadata.
func (a *Admin) UnregisterBroker(ctx context.Context, broker int32) error {
	return a.run(ctx, "unregistering a broker", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_unregister_broker_start(a.client.c.h, C.int32_t(broker), callTimeout(ctx), opaque, op, e)
	}, nil)
}

// QuorumReplica is a member of the metadata quorum.
type QuorumReplica struct {
	ID                      int32
	Voter                   bool
	LogEnd                  int64         // of its copy of the metadata log; -1 unknown
	FetchedAgo, CaughtUpAgo time.Duration // by the leader's clock; negative: unknown
	Directory               GUID
}

// Quorum is the metadata quorum as its leader sees it.
type Quorum struct {
	Leader, Epoch int32 // Leader -1: none
	HighWatermark int64
	Replicas      []QuorumReplica // voters first
}

// DescribeQuorum gives the metadata quorum.
func (a *Admin) DescribeQuorum(ctx context.Context) (*Quorum, error) {
	out := &Quorum{}
	err := a.run(ctx, "describing the quorum", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_describe_quorum_start(a.client.c.h, callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		q := C.kc_op_result_quorum(op)
		if q == nil {
			return
		}
		defer C.kc_quorum_info_free(q)
		out.Leader, out.Epoch, out.HighWatermark = int32(C.kc_quorum_info_leader(q)), int32(C.kc_quorum_info_epoch(q)),
			int64(C.kc_quorum_info_high_watermark(q))
		for i := C.size_t(0); i < C.kc_quorum_info_count(q); i++ {
			var r C.kc_quorum_replica
			C.kc_quorum_info_get(q, i, &r)
			out.Replicas = append(out.Replicas, QuorumReplica{int32(r.id), r.voter != 0, int64(r.log_end), time.Duration(r.fetched_ms_ago) * time.Millisecond,
				time.Duration(r.caught_up_ms_ago) * time.Millisecond, *(*GUID)(unsafe.Pointer(&r.directory))})
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LogDirReplica is a replica in a log directory.
type LogDirReplica struct {
	Topic     string
	Partition int32
	Size, Lag int64 // bytes; records that it is behind, as its broker was last told, -1: unknown
	Future    bool  // a copy that is being moved to this directory
}

// LogDir is a log directory of a broker.
type LogDir struct {
	Path                    string
	Err                     error // offline
	TotalBytes, UsableBytes int64 // of its disk; -1 unknown
	Replicas                []LogDirReplica
}

// DescribeLogDirs gives a broker's log directories and the replicas in them.
func (a *Admin) DescribeLogDirs(ctx context.Context, broker int32) ([]LogDir, error) {
	var out []LogDir
	err := a.run(ctx, "describing log directories", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_describe_log_dirs_start(a.client.c.h, C.int32_t(broker), callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_log_dirs(op)
		if l == nil {
			return
		}
		defer C.kc_log_dir_list_free(l)
		for i := C.size_t(0); i < C.kc_log_dir_list_count(l); i++ {
			var d C.kc_log_dir
			C.kc_log_dir_list_get(l, i, &d)
			out = append(out, LogDir{Path: C.GoString(d.path), Err: codeError(d.err, C.GoString(d.path)), TotalBytes: int64(d.total_bytes),
				UsableBytes: int64(d.usable_bytes)})
		}
		for i := C.size_t(0); i < C.kc_log_dir_list_replica_count(l); i++ {
			var r C.kc_log_dir_replica
			C.kc_log_dir_list_replica(l, i, &r)
			out[r.dir].Replicas = append(out[r.dir].Replicas, LogDirReplica{C.GoString(r.topic), int32(r.partition), int64(r.size), int64(r.lag),
				r.future != 0})
		}
	})
	return out, err
}

// NodeCounts gives what a node has counted since its start (kbroker alone): elections that lost records, brokers fenced, logs cut back. broker -1:
// the active controller.
func (a *Admin) NodeCounts(ctx context.Context, broker int32) (map[string]int64, error) {
	out := map[string]int64{}
	err := a.run(ctx, "asking for a node's counts", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_node_counts_start(a.client.c.h, C.int32_t(broker), callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_counts(op)
		defer C.kc_count_list_free(l)
		for i := C.size_t(0); l != nil && i < C.kc_count_list_count(l); i++ {
			var c C.kc_count
			C.kc_count_list_get(l, i, &c)
			out[C.GoString(c.name)] = int64(c.value)
		}
	})
	return out, err
}
