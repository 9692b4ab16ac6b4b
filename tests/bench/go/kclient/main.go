// Load program on this repository's Go binding. -how: of produce "" (SendAsync) or "batch" (SendBatchAsync), of consume "" (Records), "batch" (PollBatch), "borrowed".
package main

import (
	"context"
	"log"
	"sync/atomic"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"kclient.test/bench/go/run"
)

func main() {
	j := run.Parse()
	client := run.Must(kclient.NewClient(kclient.Config{"bootstrap.servers": j.Boot, "enable.idempotence": true, "acks": "all", "linger.ms": 5,
		"batch.size": 1 << 20, "queue.buffering.max.messages": 100000, "auto.offset.reset": "earliest"}))
	switch j.Mode {
	case "produce":
		produce(j, client)
	case "consume":
		consume(j, client)
	}
	_ = client.Close(context.Background())
}

func produce(j *run.Job, client *kclient.Client) {
	ctx := context.Background()
	p := run.Must(kclient.NewProducer(client, nil))
	values := j.Values()
	run.Must(p.Send(ctx, kclient.Record{Topic: j.Topic, Value: values[0]})) // connected, and everything known
	var ok, failed atomic.Int64
	j.Begin()
	if j.How == "batch" {
		batch := make([]kclient.Record, 500)
		for at := 0; at < j.Records; at += len(batch) {
			batch = batch[:min(len(batch), j.Records-at)]
			for i := range batch {
				batch[i] = kclient.Record{Topic: j.Topic, Value: values[(at+i)%len(values)]}
			}
			err := p.SendBatchAsync(ctx, batch, func(reports []kclient.Report) {
				for i := range reports {
					if reports[i].Err != nil {
						failed.Add(1)
					}
				}
				ok.Add(int64(len(reports)))
			})
			if err != nil {
				log.Fatal(err)
			}
		}
	} else {
		told := func(_ kclient.Report, err error) {
			if err != nil {
				failed.Add(1)
			}
			ok.Add(1)
		}
		for i := range j.Records {
			p.SendAsync(ctx, kclient.Record{Topic: j.Topic, Value: values[i%len(values)]}, told)
		}
	}
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	j.End(int(ok.Load()), int(failed.Load()))
}

func consume(j *run.Job, client *kclient.Client) {
	ctx := context.Background()
	k := run.Must(kclient.NewConsumer(client, nil))
	j.Begin()
	if err := k.Assign(kclient.TopicPartition{Topic: j.Topic, Offset: kclient.OffsetBeginning}); err != nil {
		log.Fatal(err)
	}
	n, bytes := 0, 0
	switch j.How {
	case "":
		for r, err := range k.Records(ctx) {
			if err != nil {
				log.Fatal(err)
			}
			bytes += len(r.Value)
			if n++; n == j.Records {
				break
			}
		}
	default:
		for n < j.Records {
			var b *kclient.Batch
			if j.How == "borrowed" {
				b = run.Must(k.PollBorrowed(ctx))
			} else {
				b = run.Must(k.PollBatch(ctx))
			}
			for i := range b.Len() {
				bytes += len(b.Value(i))
			}
			n += b.Len()
			b.Release()
		}
	}
	j.End(n, 0)
	if bytes == 0 {
		log.Fatal("no bytes")
	}
}
