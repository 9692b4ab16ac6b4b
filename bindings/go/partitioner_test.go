package kclient_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func TestPartitioner(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 4, 1, nil)
	p := newProducer(t, c, nil, kclient.WithPartitioner(func(topic string, key []byte, count int) int {
		if topic != "orders" || count != 4 {
			return 99
		}
		if key == nil {
			return -1
		}
		return int(key[0]) % 5 // 4: there is none
	}))
	for i := range 4 {
		if r := must(p.Send(within(t), kclient.Record{Topic: "orders", Key: []byte{byte(i)}}))(t); r.Partition != int32(i) {
			t.Errorf("partition %d of key %d", r.Partition, i)
		}
	}
	must(p.Send(within(t), kclient.Record{Topic: "orders"}))(t)
	if _, err := p.Send(within(t), kclient.Record{Topic: "orders", Key: []byte{4}}); !errors.Is(err, kclient.ErrInvalid) {
		t.Errorf("a partition that is not there: %v", err)
	}
	reports, err := p.SendBatch(within(t), []kclient.Record{{Topic: "orders", Key: []byte{1}}, {Topic: "orders", Key: []byte{4}}, {Topic: "orders",
		Key: []byte{2}}})
	if !errors.Is(err, kclient.ErrInvalid) || reports[0].Err != nil || reports[1].Err == nil || reports[2].Err != nil || reports[2].Partition != 2 {
		t.Errorf("%v %+v", err, reports)
	}
}

// A panic in the partitioner reaches whoever sends, by whatever call, and the producer goes on.
func TestPartitionerPanics(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 4, 1, nil)
	p := newProducer(t, c, nil, kclient.WithPartitioner(func(_ string, key []byte, _ int) int {
		if string(key) == "bad" {
			panic("not that one")
		}
		return 1
	}))
	var stored, told atomic.Int32
	count := func(_ kclient.Report, err error) {
		told.Add(1)
		if err == nil {
			stored.Add(1)
		}
	}
	good, bad := kclient.Record{Topic: "orders", Key: []byte("good")}, kclient.Record{Topic: "orders", Key: []byte("bad")}
	for i := range 20 {
		for name, send := range map[string]func(){
			"Send":      func() { p.Send(within(t), bad) },
			"SendAsync": func() { p.SendAsync(within(t), bad, count) },
			"SendBatch": func() { p.SendBatch(within(t), []kclient.Record{good, bad, good}) },
		} {
			if got := panicOf(send); got != "not that one" {
				t.Fatalf("%s, round %d: %v", name, i, got)
			}
		}
		if r := must(p.Send(within(t), good))(t); r.Partition != 1 {
			t.Errorf("partition %d", r.Partition)
		}
		p.SendAsync(within(t), good, count)
	}
	check(t, p.Flush(within(t)))
	if stored.Load() != 20 || told.Load() != 20 {
		t.Errorf("%d stored, %d told", stored.Load(), told.Load())
	}
	k := newConsumer(t, c, nil)
	check(t, k.Assign(kclient.TopicPartition{Topic: "orders", Partition: 1, Offset: kclient.OffsetBeginning}))
	for _, r := range read(t, k, 60) { // of each round: one Send, one SendAsync, and the first of the batch
		if string(r.Key) != "good" {
			t.Errorf("%s was stored", r.Key)
		}
	}
	check(t, p.Close(within(t)))
}

func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return fmt.Errorf("no panic")
}
