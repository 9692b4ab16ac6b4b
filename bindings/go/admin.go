package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
)

// Admin administers a cluster: topics, configurations, records, leaders, groups. It needs no Close; it lives as long as its client. All methods may
// be called from any goroutine. A call ends by ctx, or after default.api.timeout.ms when that has no deadline. Calls over several items give the
// first item's error; each item's own is in the results.
type Admin struct{ client *Client }

// NewAdmin gives the administration of a client's cluster.
func NewAdmin(client *Client) *Admin { return &Admin{client} }

type startFunc = func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err

func (a *Admin) run(ctx context.Context, what string, start startFunc, take func(op *C.kc_op)) error {
	defer runtime.KeepAlive(a)
	return a.client.c.run(ctx, what, start, take)
}

// ItemResult is the outcome of one item of a call.
type ItemResult struct {
	Name      string // a topic's, a group's, a member's
	Partition int32  // -1: the item is no partition
	Err       error  // nil: done
}

// items runs an operation whose results are items.
func (a *Admin) items(ctx context.Context, what string, start startFunc) ([]ItemResult, error) {
	var out []ItemResult
	err := a.run(ctx, what, start, func(op *C.kc_op) {
		n := int(C.kc_op_result_items(op, nil, C.sizeof_kc_admin_result, 0))
		var m cmem
		defer m.free()
		raw := alloc[C.kc_admin_result](&m, n)
		C.kc_op_result_items(op, first(raw), C.sizeof_kc_admin_result, C.size_t(n))
		for i := range raw {
			r := ItemResult{Name: C.GoString(raw[i].name), Partition: int32(raw[i].partition)}
			place := r.Name
			if r.Partition >= 0 {
				place = fmt.Sprintf("%s[%d]", r.Name, r.Partition)
			}
			r.Err = itemError(raw[i].err, raw[i].message, what+": "+place)
			out = append(out, r)
		}
	})
	return out, err
}

// NewTopic is a topic to be created.
type NewTopic struct {
	Name              string
	Partitions        int32 // 0: the broker's num.partitions
	ReplicationFactor int32 // 0: the broker's default.replication.factor
	Configs           map[string]string
	// Replicas, where the cluster is not to place them: broker ids of each partition, the preferred leader first; as many of each.
	Replicas [][]int32
}

// CreateTopics creates topics.
func (a *Admin) CreateTopics(ctx context.Context, topics ...NewTopic) ([]ItemResult, error) {
	return a.createTopics(ctx, topics, 0, "creating topics")
}

// ValidateTopics checks whether topics could be created; nothing is changed.
func (a *Admin) ValidateTopics(ctx context.Context, topics ...NewTopic) ([]ItemResult, error) {
	return a.createTopics(ctx, topics, 1, "checking topics")
}

func (a *Admin) createTopics(ctx context.Context, topics []NewTopic, validate C.int32_t, what string) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	raw := alloc[C.kc_topic_new](&m, len(topics))
	for i, t := range topics {
		raw[i].name = m.string(t.Name)
		raw[i].partitions = C.int32_t(t.Partitions)
		raw[i].replication_factor = C.int32_t(t.ReplicationFactor)
		pairs := alloc[C.kc_config_pair](&m, len(t.Configs))
		at := 0
		for name, value := range t.Configs {
			pairs[at] = C.kc_config_pair{name: m.string(name), value: m.string(value)}
			at++
		}
		raw[i].configs, raw[i].config_count = first(pairs), C.size_t(len(pairs))
		if err := placeReplicas(&m, &raw[i], t); err != nil {
			return nil, err
		}
	}
	return a.items(ctx, what, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_create_topics_start(a.client.c.h, first(raw), C.sizeof_kc_topic_new, C.size_t(len(raw)), validate, callTimeout(ctx), opaque, op,
			e)
	})
}

func placeReplicas(m *cmem, raw *C.kc_topic_new, t NewTopic) error {
	if len(t.Replicas) == 0 {
		return nil
	}
	var all []int32
	for _, r := range t.Replicas {
		if len(r) != len(t.Replicas[0]) || len(r) == 0 {
			return newError(ErrInvalid, NotPersisted, "creating %s: each partition must have as many replicas as the others", t.Name)
		}
		all = append(all, r...)
	}
	raw.partitions, raw.replication_factor = C.int32_t(len(t.Replicas)), C.int32_t(len(t.Replicas[0]))
	raw.replicas = m.numbers(all)
	return nil
}

// named makes items of names.
func named(m *cmem, names []string) []C.kc_admin_item {
	raw := alloc[C.kc_admin_item](m, len(names))
	for i, n := range names {
		raw[i].name = m.string(n)
	}
	return raw
}

// DeleteTopics deletes topics with all their records.
func (a *Admin) DeleteTopics(ctx context.Context, names ...string) ([]ItemResult, error) {
	var m cmem
	defer m.free()
	raw := named(&m, names)
	return a.items(ctx, "deleting topics", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_delete_topics_start(a.client.c.h, first(raw), C.sizeof_kc_admin_item, C.size_t(len(raw)), callTimeout(ctx), opaque, op, e)
	})
}

// CreatePartitions lets a topic grow to `total` partitions.
func (a *Admin) CreatePartitions(ctx context.Context, topic string, total int32) error {
	var m cmem
	defer m.free()
	raw := named(&m, []string{topic})
	raw[0].count = C.int32_t(total)
	_, err := a.items(ctx, "creating partitions", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_create_partitions_start(a.client.c.h, first(raw), C.sizeof_kc_admin_item, 1, callTimeout(ctx), opaque, op, e)
	})
	return err
}

// DeleteRecords deletes records below Offset ([OffsetEnd]: all); Offset of the results is the new start of the log.
func (a *Admin) DeleteRecords(ctx context.Context, parts ...TopicPartition) ([]TopicPartition, error) {
	raw, err := a.client.c.rawParts(parts)
	if err != nil {
		return nil, err
	}
	const what = "deleting records"
	var out []TopicPartition
	err = a.run(ctx, what, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_delete_records_start(a.client.c.h, first(raw), C.sizeof_kc_topic_partition, C.size_t(len(raw)), callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) { out = a.client.c.takeOffsets(op, what) })
	return out, err
}

// Resource is what has configurations.
type Resource int32

const (
	ResourceTopic  Resource = C.KC_RESOURCE_TOPIC
	ResourceBroker Resource = C.KC_RESOURCE_BROKER
)

// ConfigOp is what to do with a configuration.
type ConfigOp int32

const (
	ConfigSet      ConfigOp = 0
	ConfigDelete   ConfigOp = 1 // back to the default
	ConfigAppend   ConfigOp = 2 // to a list
	ConfigSubtract ConfigOp = 3 // from a list
)

// ConfigChange is one change of a configuration.
type ConfigChange struct {
	Name, Value string
	Op          ConfigOp
}

// AlterConfigs changes single configurations of a topic or a broker ("": all brokers), as a whole or not at all; the others stay.
func (a *Admin) AlterConfigs(ctx context.Context, resource Resource, name string, changes ...ConfigChange) error {
	var m cmem
	defer m.free()
	pairs := alloc[C.kc_config_pair](&m, len(changes))
	for i, c := range changes {
		pairs[i] = C.kc_config_pair{name: m.string(c.Name), value: m.string(c.Value), op: C.int32_t(c.Op)}
		if c.Op == ConfigDelete {
			pairs[i].value = nil
		}
	}
	raw := alloc[C.kc_config_alter](&m, 1)
	raw[0] = C.kc_config_alter{resource: C.int32_t(resource), name: m.string(name), pairs: first(pairs), pair_count: C.size_t(len(pairs))}
	_, err := a.items(ctx, "changing configurations", func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_alter_configs_start(a.client.c.h, first(raw), C.sizeof_kc_config_alter, 1, callTimeout(ctx), opaque, op, e)
	})
	return err
}

// ConfigEntry is a configuration in effect.
type ConfigEntry struct {
	Name, Value         string
	IsNull              bool   // or sensitive
	Source              string // "topic", "broker", "broker default", "static", "default"
	ReadOnly, Sensitive bool
	Doc                 string
}

// DescribeConfigs gives all configurations of a topic or a broker, defaults included.
func (a *Admin) DescribeConfigs(ctx context.Context, resource Resource, name string) ([]ConfigEntry, error) {
	var m cmem
	defer m.free()
	cname := m.string(name)
	var out []ConfigEntry
	err := a.run(ctx, "describing the configurations of "+name, func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err {
		return C.kc_admin_describe_configs_start(a.client.c.h, C.int32_t(resource), cname, callTimeout(ctx), opaque, op, e)
	}, func(op *C.kc_op) {
		l := C.kc_op_result_configs(op)
		defer C.kc_config_list_free(l)
		for i := C.size_t(0); l != nil && i < C.kc_config_list_count(l); i++ {
			var c C.kc_config_item
			C.kc_config_list_get(l, i, &c)
			out = append(out, ConfigEntry{C.GoString(c.name), C.GoString(c.value), c.value == nil, C.GoString(c.source), c.read_only != 0, c.sensitive != 0,
				C.GoString(c.doc)})
		}
	})
	return out, err
}
