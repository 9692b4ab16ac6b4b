package kclient_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

// ours are the goroutines that stand in this package's code.
func ours() []string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	var found []string
	for _, g := range strings.Split(string(all), "\n\n") {
		if strings.Contains(g, "bindings/go.(*") {
			found = append(found, g)
		}
	}
	return found
}

func threads(t *testing.T) int {
	tasks, err := os.ReadDir("/proc/self/task")
	check(t, err)
	return len(tasks)
}

func eventually(t *testing.T, what string, is func() bool, seen func() any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come about: %v", what, seen())
		}
		runtime.GC()
	}
}

// Not parallel: they count what the whole process has.

func TestNothingIsLeftOfWhatWasClosed(t *testing.T) {
	c := kctest.Start(t)
	before := len(ours())
	for range 10 {
		client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": c.Bootstrap()}))(t)
		p := must(kclient.NewProducer(client, nil))(t)
		k := must(kclient.NewConsumer(client, kclient.Config{"group.id": "g"}))(t)
		check(t, k.Subscribe("orders"))
		for range 100 {
			p.SendAsync(within(t), kclient.Record{Topic: "orders"}, nil)
		}
		must(p.Send(within(t), kclient.Record{Topic: "orders"}))(t)
		check(t, client.Close(within(t)))
	}
	eventually(t, "an end of all goroutines", func() bool { return len(ours()) <= before }, func() any { return ours() })
}

// Handles that are dropped without a Close are collected, do no harm, and what was sent is still reported.
func TestDroppedHandlesAreCollected(t *testing.T) {
	c := kctest.Start(t)
	before := len(ours())
	var told sync.WaitGroup
	for range 10 {
		func() {
			client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": c.Bootstrap()}))(t)
			p := must(kclient.NewProducer(client, nil))(t)
			k := must(kclient.NewConsumer(client, nil))(t)
			check(t, k.Assign(kclient.TopicPartition{Topic: "orders"}))
			told.Add(100)
			for range 100 {
				p.SendAsync(within(t), kclient.Record{Topic: "orders"}, func(_ kclient.Report, err error) {
					if err != nil {
						t.Error(err)
					}
					told.Done()
				})
			}
		}()
		runtime.GC()
	}
	told.Wait()
	eventually(t, "a collection of all clients", func() bool { return len(ours()) <= before }, func() any { return ours() })
}

// Goroutines that wait cost no threads: neither for records, nor for outcomes, nor for answers.
func TestWaitingCostsNoThreads(t *testing.T) {
	const waiting = 200
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	client := c.Client(nil)
	p := must(kclient.NewProducer(client, nil))(t)
	c.AddFault(kctest.Fault{API: "Produce", Stall: true})
	c.AddFault(kctest.Fault{API: "Metadata", Stall: true})
	ctx, cancel := context.WithCancel(context.Background())
	before := threads(t)
	var wg sync.WaitGroup
	for range waiting {
		k := must(kclient.NewConsumer(client, nil))(t)
		check(t, k.Assign(kclient.TopicPartition{Topic: "orders", Offset: kclient.OffsetBeginning}))
		for _, wait := range []func(){
			func() { k.PollBatch(ctx) },
			func() { p.Send(ctx, kclient.Record{Topic: "orders"}) },
			func() { kclient.NewAdmin(client).DescribeCluster(ctx) },
		} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				wait()
			}()
		}
	}
	time.Sleep(200 * time.Millisecond)
	if now := threads(t); now > before+20 {
		t.Errorf("%d threads more for %d goroutines that wait", now-before, 3*waiting)
	}
	cancel()
	wg.Wait()
	c.ClearFaults()
}

func TestLogger(t *testing.T) {
	var mu sync.Mutex
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": "127.0.0.1:1"}, kclient.WithLogger(logger)))(t)
	defer client.Close(within(t))
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, _ = kclient.NewAdmin(client).DescribeCluster(ctx)
	eventually(t, "a line about the broker", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(text.String(), "127.0.0.1:1")
	}, func() any { return text.String() })
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
