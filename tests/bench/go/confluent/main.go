// Load program on confluent-kafka-go.
package main

import (
	"log"
	"sync/atomic"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"kclient.test/bench/go/run"
)

func main() {
	j := run.Parse()
	switch j.Mode {
	case "produce":
		produce(j)
	case "consume":
		consume(j)
	}
}

func produce(j *run.Job) {
	p := run.Must(kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": j.Boot, "acks": "all", "enable.idempotence": true, "linger.ms": 5, "batch.size": 1 << 20,
		"batch.num.messages": 10000, "queue.buffering.max.messages": 100000, "compression.type": "none"}))
	place := kafka.TopicPartition{Topic: &j.Topic, Partition: kafka.PartitionAny}
	values := j.Values()
	first := make(chan kafka.Event, 1)
	if err := p.Produce(&kafka.Message{TopicPartition: place, Value: values[0]}, first); err != nil {
		log.Fatal(err)
	}
	<-first
	var ok, failed atomic.Int64
	over := make(chan struct{})
	go func() {
		for e := range p.Events() {
			m, is := e.(*kafka.Message)
			if !is {
				continue
			}
			if m.TopicPartition.Error != nil {
				failed.Add(1)
			}
			if ok.Add(1) == int64(j.Records) {
				close(over)
			}
		}
	}()
	j.Begin()
	for i := range j.Records {
		for {
			err := p.Produce(&kafka.Message{TopicPartition: place, Value: values[i%len(values)]}, nil)
			if err == nil {
				break
			}
			if e, is := err.(kafka.Error); !is || e.Code() != kafka.ErrQueueFull {
				log.Fatal(err)
			}
			p.Flush(5)
		}
	}
	p.Flush(1)
	<-over
	j.End(int(ok.Load()), int(failed.Load()))
	p.Close()
}

func consume(j *run.Job) {
	c := run.Must(kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": j.Boot, "group.id": "bench", "enable.auto.commit": false, "auto.offset.reset": "earliest",
		"queued.min.messages": 10_000_000})) // by default it pauses for a second once 100,000 records wait
	j.Begin()
	if err := c.Assign([]kafka.TopicPartition{{Topic: &j.Topic, Partition: 0, Offset: kafka.OffsetBeginning}}); err != nil {
		log.Fatal(err)
	}
	n, bytes := 0, 0
	for n < j.Records {
		switch e := c.Poll(100).(type) {
		case *kafka.Message:
			bytes += len(e.Value)
			n++
		case kafka.Error:
			log.Print(e)
		}
	}
	j.End(n, 0)
	if bytes == 0 {
		log.Fatal("no bytes")
	}
	_ = c.Close()
}
