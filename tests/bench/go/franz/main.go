// Load program on franz-go.
package main

import (
	"context"
	"log"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"kclient.test/bench/go/run"
)

func main() {
	j := run.Parse()
	opts := []kgo.Opt{kgo.SeedBrokers(j.Boot)}
	switch j.Mode {
	case "produce":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(100000),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DefaultProduceTopic(j.Topic))
		c := run.Must(kgo.NewClient(opts...))
		produce(j, c)
		c.Close()
	case "consume":
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: {0: kgo.NewOffset().AtStart()}}))
		j.Begin()
		c := run.Must(kgo.NewClient(opts...))
		consume(j, c)
		c.Close()
	}
}

func produce(j *run.Job, c *kgo.Client) {
	ctx := context.Background()
	values := j.Values()
	if err := c.ProduceSync(ctx, &kgo.Record{Value: values[0]}).FirstErr(); err != nil {
		log.Fatal(err)
	}
	var ok, failed atomic.Int64
	told := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
		ok.Add(1)
	}
	j.Begin()
	for i := range j.Records {
		c.Produce(ctx, &kgo.Record{Value: values[i%len(values)]}, told)
	}
	if err := c.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	j.End(int(ok.Load()), int(failed.Load()))
}

func consume(j *run.Job, c *kgo.Client) {
	n, bytes := 0, 0
	for n < j.Records {
		fetches := c.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			bytes += len(r.Value)
			n++
		})
	}
	j.End(n, 0)
	if bytes == 0 {
		log.Fatal("no bytes")
	}
}
