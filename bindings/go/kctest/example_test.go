package kctest_test

import (
	"context"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func TestOrdersSurviveTheirLeader(t *testing.T) {
	cluster := kctest.Start(t, kctest.Nodes(3))
	cluster.CreateTopic("orders", 1, 3, map[string]string{"min.insync.replicas": "2"})
	producer, err := kclient.NewProducer(cluster.Client(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// The answer to the first request is lost; then its leader dies.
	cluster.AddFault(kctest.Fault{API: "Produce", Times: 1, Close: true, When: "after"})
	if _, err := producer.Send(ctx, kclient.Record{Topic: "orders", Value: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	cluster.Kill(cluster.WaitForLeader("orders", 0))
	cluster.WaitForLeader("orders", 0)
	report, err := producer.Send(ctx, kclient.Record{Topic: "orders", Value: []byte("two")})
	if err != nil {
		t.Fatal(err)
	}
	if report.Offset != 1 {
		t.Errorf("stored at %d: something is there twice, or lost", report.Offset)
	}
}
