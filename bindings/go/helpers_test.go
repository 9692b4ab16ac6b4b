package kclient_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

// patience is how long a test waits for what has to come: only a failure takes so long.
const patience = 60 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newProducer(t testing.TB, c *kctest.Cluster, config kclient.Config, options ...kclient.ProducerOption) *kclient.Producer {
	t.Helper()
	return must(kclient.NewProducer(c.Client(nil), config, options...))(t)
}

func newConsumer(t testing.TB, c *kctest.Cluster, config kclient.Config, options ...kclient.ConsumerOption) *kclient.Consumer {
	t.Helper()
	all := kclient.Config{"auto.offset.reset": "earliest"}
	for k, v := range config {
		all[k] = v
	}
	return must(kclient.NewConsumer(c.Client(nil), all, options...))(t)
}

// fill stores n records with the values "0", "1", … in a partition.
func fill(t testing.TB, c *kctest.Cluster, topic string, partition int32, n int) {
	t.Helper()
	p := newProducer(t, c, nil)
	records := make([]kclient.Record, n)
	for i := range records {
		records[i] = kclient.Record{Topic: topic, Partition: partition, HasPartition: true, Value: []byte(fmt.Sprint(i))}
	}
	_, err := p.SendBatch(within(t), records)
	check(t, err)
}

// read gives the next n records.
func read(t testing.TB, k *kclient.Consumer, n int) []kclient.Record {
	t.Helper()
	var got []kclient.Record
	if n == 0 {
		return nil
	}
	for r, err := range k.Records(within(t)) {
		check(t, err)
		if got = append(got, r); len(got) == n {
			break
		}
	}
	return got
}
