package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"
)

// GroupListing is a group of the list.
type GroupListing struct {
	Group        string
	ProtocolType string // "consumer"; "": only offsets are kept
	State        string // "Stable", "PreparingRebalance", "CompletingRebalance", "Empty", …
	Type         string // "classic", "consumer", …
	Coordinator  int32
}

// GroupFilter narrows ListGroups; empty: all.
type GroupFilter struct{ States, Types []string }

// ListGroups gives the groups of all brokers. A broker that could not be asked is in the error, beside the groups of the others.
func (a *Admin) ListGroups(ctx context.Context, filter GroupFilter) ([]GroupListing, error) {
	var m cmem
	defer m.free()
	states, types := m.strings(filter.States), m.strings(filter.Types)
	var out []GroupListing
	var failed error
	err := a.run(ctx, "listing groups", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_list_groups_start(a.client.c.h, states, C.size_t(len(filter.States)), types, C.size_t(len(filter.Types)), callTimeout(ctx),
			opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_groups(op)
		if l == nil {
			return
		}
		defer C.kc_group_list_free(l)
		for i := C.size_t(0); i < C.kc_group_list_count(l); i++ {
			var g C.kc_group_listing
			C.kc_group_list_get(l, i, &g)
			out = append(out, GroupListing{C.GoString(g.group), C.GoString(g.protocol_type), C.GoString(g.state), C.GoString(g._type), int32(g.coordinator)})
		}
		var f C.kc_group_list_failure
		if C.kc_group_list_failed(l, 0, &f) == C.KC_OK {
			failed = codeError(f.err, fmt.Sprintf("broker %d could not be asked for its groups", int32(f.broker)))
		}
	})
	if err == nil {
		err = failed
	}
	return out, err
}

// GroupMember is a member of a group.
type GroupMember struct {
	ID, ClientID, Host   string
	InstanceID           string // "": not static
	Topics               []string
	Assigned             []TopicPartition
	Err                  error
	Metadata, Assignment []byte // as it said and was given
}

// Group is a group with its members.
type Group struct {
	Group, State, ProtocolType, Protocol string
	Coordinator                          int32 // -1 unknown
	Members                              []GroupMember
	Err                                  error
}

// DescribeGroups gives groups, in the order asked for; each has an Err of its own ([ErrGroupIDNotFound]).
func (a *Admin) DescribeGroups(ctx context.Context, groups ...string) ([]Group, error) {
	var m cmem
	defer m.free()
	names := m.strings(groups)
	var out []Group
	err := a.run(ctx, "describing groups", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_describe_groups_start(a.client.c.h, names, C.size_t(len(groups)), callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		d := C.kc_op_result_group_details(op)
		defer C.kc_group_details_free(d)
		for i := C.size_t(0); d != nil && i < C.kc_group_details_count(d); i++ {
			out = append(out, readGroup(d, i))
		}
	})
	return out, err
}

func readGroup(d *C.kc_group_details, i C.size_t) Group {
	var g C.kc_group_info
	C.kc_group_details_get(d, i, &g)
	out := Group{Group: C.GoString(g.group), State: C.GoString(g.state), ProtocolType: C.GoString(g.protocol_type), Protocol: C.GoString(g.protocol),
		Coordinator: int32(g.coordinator)}
	out.Err = itemError(g.err, g.message, "describing group "+out.Group)
	for k := C.size_t(0); k < g.member_count; k++ {
		var r C.kc_group_member
		C.kc_group_details_member(d, i, k, &r)
		member := GroupMember{ID: C.GoString(r.id), ClientID: C.GoString(r.client_id), Host: C.GoString(r.host), InstanceID: C.GoString(r.instance_id),
			Err: codeError(r.err, "a member of "+out.Group), Metadata: C.GoBytes(r.metadata.p, C.int(r.metadata.size)),
			Assignment: C.GoBytes(r.assignment.p, C.int(r.assignment.size))}
		for _, t := range unsafe.Slice(r.topics, int(r.topic_count)) {
			member.Topics = append(member.Topics, C.GoString(t))
		}
		for _, p := range unsafe.Slice(r.assigned, int(r.assigned_count)) {
			member.Assigned = append(member.Assigned, TopicPartition{Topic: C.GoString(p.topic), Partition: int32(p.partition)})
		}
		out.Members = append(out.Members, member)
	}
	return out
}

// GroupOffsets gives the committed offsets of a group: of these partitions, or, without any, of all that have one.
func (a *Admin) GroupOffsets(ctx context.Context, group string, parts ...TopicPartition) ([]TopicPartition, error) {
	var m cmem
	defer m.free()
	names := m.strings([]string{group})
	raw := alloc[C.kc_group_partition](&m, len(parts))
	for i, p := range parts {
		raw[i] = C.kc_group_partition{topic: m.string(p.Topic), partition: C.int32_t(p.Partition)}
	}
	what := "the offsets of group " + group
	var out []TopicPartition
	var failed error
	err := a.run(ctx, what, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_group_offsets_start(a.client.c.h, names, 1, first(raw), C.sizeof_kc_group_partition, C.size_t(len(raw)), 0, callTimeout(ctx),
			opaque, op, e)
	}, func(op *C.kc_op) {
		o := C.kc_op_result_group_offsets(op)
		if o == nil {
			return
		}
		defer C.kc_group_offsets_free(o)
		failed = codeError(C.kc_group_offsets_err(o, 0), what)
		for i := C.size_t(0); i < C.kc_group_offsets_count(o, 0); i++ {
			var g C.kc_group_offset
			C.kc_group_offsets_get(o, 0, i, &g)
			out = append(out, TopicPartition{Topic: C.GoString(g.topic), Partition: int32(g.partition), Offset: int64(g.offset),
				LeaderEpoch: int32(g.leader_epoch),
				Metadata:    C.GoString(g.metadata), Err: codeError(g.err, what)})
		}
	})
	if err == nil {
		err = failed
	}
	return out, err
}

func offsetItems(m *cmem, parts []TopicPartition) []C.kc_group_offset_item {
	raw := alloc[C.kc_group_offset_item](m, len(parts))
	for i, p := range parts {
		raw[i].topic, raw[i].partition = m.string(p.Topic), C.int32_t(p.Partition)
		raw[i].offset, raw[i].leader_epoch = C.int64_t(p.Offset), C.int32_t(p.LeaderEpoch)
		raw[i].metadata = m.text(p.Metadata)
	}
	return raw
}

// AlterGroupOffsets commits offsets in a group's place, which must have no members; one that is not there is made.
func (a *Admin) AlterGroupOffsets(ctx context.Context, group string, offsets ...TopicPartition) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	name, raw := m.string(group), offsetItems(&m, offsets)
	return a.items(ctx, "changing the offsets of group "+group, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_alter_group_offsets_start(a.client.c.h, name, first(raw), C.sizeof_kc_group_offset_item, C.size_t(len(raw)), callTimeout(ctx),
			opaque, op, e)
	})
}

// DeleteGroupOffsets forgets committed offsets.
func (a *Admin) DeleteGroupOffsets(ctx context.Context, group string, parts ...TopicPartition) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	name, raw := m.string(group), offsetItems(&m, parts)
	return a.items(ctx, "forgetting offsets of group "+group, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_delete_group_offsets_start(a.client.c.h, name, first(raw), C.sizeof_kc_group_offset_item, C.size_t(len(raw)), callTimeout(ctx),
			opaque, op, e)
	})
}

// DeleteGroups deletes groups without members, with their offsets.
func (a *Admin) DeleteGroups(ctx context.Context, groups ...string) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	raw := named(&m, groups)
	return a.items(ctx, "deleting groups", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_delete_groups_start(a.client.c.h, first(raw), C.sizeof_kc_admin_item, C.size_t(len(raw)), callTimeout(ctx), opaque, op, e)
	})
}

// MemberToRemove names a member of a group by its member id or, where it is static, by its instance id.
type MemberToRemove struct{ MemberID, InstanceID string }

// RemoveGroupMembers puts members out of a group; none: all of them. reason, which may be "", is for the broker's log.
func (a *Admin) RemoveGroupMembers(ctx context.Context, group, reason string, members ...MemberToRemove) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	name, why := m.string(group), m.text(reason)
	raw := alloc[C.kc_group_member_item](&m, len(members))
	for i, r := range members {
		raw[i].name = m.string(r.MemberID)
		if r.InstanceID != "" {
			raw[i].name, raw[i].is_static = m.string(r.InstanceID), 1
		}
	}
	return a.items(ctx, "removing members of group "+group, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_remove_group_members_start(a.client.c.h, name, why, first(raw), C.sizeof_kc_group_member_item, C.size_t(len(raw)),
			callTimeout(ctx), opaque, op, e)
	})
}
