package kclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

// broker starts a broker for an example.
func broker() *kctest.Cluster {
	cluster, err := kctest.Launch()
	if err != nil {
		log.Fatal(err)
	}
	return cluster
}

func Example() {
	cluster := broker()
	defer cluster.Stop()
	address := cluster.Bootstrap()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	client, err := kclient.NewClient(kclient.Config{"bootstrap.servers": address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	producer, err := kclient.NewProducer(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := producer.Send(ctx, kclient.Record{Topic: "greetings", Key: []byte("en"), Value: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("stored in %s[%d] at %d\n", report.Topic, report.Partition, report.Offset)

	consumer, err := kclient.NewConsumer(client, kclient.Config{"group.id": "readers", "auto.offset.reset": "earliest"})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Subscribe("greetings"); err != nil {
		log.Fatal(err)
	}
	for record, err := range consumer.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", record.Key, record.Value)
		break
	}
	// Output:
	// stored in greetings[0] at 0
	// en: hello
}

func ExampleProducer_SendAsync() {
	cluster := broker()
	defer cluster.Stop()
	ctx := context.Background()
	client, _ := kclient.NewClient(kclient.Config{"bootstrap.servers": cluster.Bootstrap()})
	defer client.Close(ctx)
	producer, _ := kclient.NewProducer(client, nil)

	stored := 0
	for i := range 10000 {
		record := kclient.Record{Topic: "numbers", Value: []byte(fmt.Sprint(i))}
		producer.SendAsync(ctx, record, func(report kclient.Report, err error) {
			if err != nil {
				log.Print(err)
				return
			}
			stored++ // one call at a time
		})
	}
	if err := producer.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored)
	// Output: 10000
}

func ExampleProducer_SendBatch() {
	cluster := broker()
	defer cluster.Stop()
	ctx := context.Background()
	client, _ := kclient.NewClient(kclient.Config{"bootstrap.servers": cluster.Bootstrap()})
	defer client.Close(ctx)
	producer, _ := kclient.NewProducer(client, nil)

	records := []kclient.Record{
		{Topic: "numbers", Value: []byte("one")},
		{Topic: "numbers", Value: []byte("two"), Headers: []kclient.Header{{Name: "language", Value: []byte("en")}}},
	}
	reports, err := producer.SendBatch(ctx, records)
	if err != nil {
		log.Fatal(err)
	}
	for i, report := range reports {
		fmt.Printf("%s is at %d\n", records[i].Value, report.Offset)
	}
	// Output:
	// one is at 0
	// two is at 1
}

func ExampleConsumer_PollBatch() {
	cluster := broker()
	defer cluster.Stop()
	ctx := context.Background()
	client, _ := kclient.NewClient(kclient.Config{"bootstrap.servers": cluster.Bootstrap()})
	defer client.Close(ctx)
	producer, _ := kclient.NewProducer(client, nil)
	producer.SendBatch(ctx, []kclient.Record{{Topic: "numbers", Value: []byte("one")}, {Topic: "numbers", Value: []byte("two")}})

	consumer, err := kclient.NewConsumer(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Assign(kclient.TopicPartition{Topic: "numbers", Partition: 0, Offset: kclient.OffsetBeginning}); err != nil {
		log.Fatal(err)
	}
	for seen := 0; seen < 2; {
		batch, err := consumer.PollBatch(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for i := range batch.Len() {
			fmt.Printf("%d: %s\n", batch.Offset(i), batch.Value(i))
		}
		seen += batch.Len()
	}
	// Output:
	// 0: one
	// 1: two
}

func ExampleError() {
	client, err := kclient.NewClient(kclient.Config{"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
	producer, _ := kclient.NewProducer(client, nil)

	_, err = producer.Send(context.Background(), kclient.Record{Topic: "orders", Value: []byte("x")})
	var e *kclient.Error
	if errors.As(err, &e) {
		fmt.Println(e.Name(), "-", e.Outcome, "- tried", len(e.Attempts) > 0)
	}
	fmt.Println(errors.Is(err, kclient.ErrExpired))
	// Output:
	// KC_EXPIRED - not persisted - tried true
	// true
}

func ExampleRecord_guid() {
	cluster := broker()
	defer cluster.Stop()
	ctx := context.Background()
	client, _ := kclient.NewClient(kclient.Config{"bootstrap.servers": cluster.Bootstrap()})
	defer client.Close(ctx)
	producer, _ := kclient.NewProducer(client, nil)
	admin := kclient.NewAdmin(client)
	admin.CreateTopics(ctx, kclient.NewTopic{Name: "payments", Partitions: 1, Configs: map[string]string{"message.guid.dedup": "true"}})

	payment := kclient.Record{Topic: "payments", Value: []byte("ann pays 10"), GUID: kclient.MustParseGUID("01890a5d-ac96-774b-bcce-b302099a8057")}
	for range 2 {
		report, err := producer.Send(ctx, payment)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("offset", report.Offset, "duplicate", report.Duplicate())
	}
	// Output:
	// offset 0 duplicate false
	// offset 0 duplicate true
}
