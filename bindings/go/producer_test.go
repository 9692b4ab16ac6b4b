package kclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func TestSend(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 3, 1, nil)
	p := newProducer(t, c, nil)
	at := time.UnixMilli(1700000000123)
	sent := kclient.Record{Topic: "orders", Partition: 0, HasPartition: true, Key: []byte("key"), Value: []byte("value"), Timestamp: at,
		Headers: []kclient.Header{{"kind", []byte("new")}, {"null", nil}, {"empty", []byte{}}}}
	report := must(p.Send(within(t), sent))(t)
	if report.Topic != "orders" || report.Partition != 0 || report.Offset != 0 || report.Outcome != kclient.Persisted || !report.Timestamp.Equal(at) {
		t.Errorf("report %+v", report)
	}
	must(p.Send(within(t), kclient.Record{Topic: "orders", HasPartition: true, Key: []byte{}, Value: nil}))(t)
	if r := must(p.Send(within(t), kclient.Record{Topic: "orders", Partition: 2, HasPartition: true}))(t); r.Partition != 2 {
		t.Errorf("partition %d", r.Partition)
	}

	k := newConsumer(t, c, nil)
	check(t, k.Assign(kclient.TopicPartition{Topic: "orders", Partition: 0, Offset: kclient.OffsetBeginning}))
	got := read(t, k, 2)
	r := got[0]
	if r.Topic != "orders" || r.Partition != 0 || r.Offset != 0 || string(r.Key) != "key" || string(r.Value) != "value" || !r.Timestamp.Equal(at) ||
		len(r.Headers) != 3 {
		t.Errorf("record %+v", r)
	}
	if v, ok := r.Header("kind"); !ok || string(v) != "new" {
		t.Errorf("header kind: %q %v", v, ok)
	}
	if v, ok := r.Header("null"); !ok || v != nil {
		t.Errorf("header null: %q %v", v, ok)
	}
	if v, ok := r.Header("empty"); !ok || v == nil || len(v) != 0 {
		t.Errorf("header empty: %q %v", v, ok)
	}
	if got[1].Key == nil || got[1].Value != nil {
		t.Errorf("an empty key and no value came as %v and %v", got[1].Key, got[1].Value)
	}
}

func TestSendDoesNotLinger(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	p := newProducer(t, c, kclient.Config{"linger.ms": 10 * time.Minute})
	for i := range 3 { // the topic is not known yet; known
		must(p.Send(within(t), kclient.Record{Topic: "orders", Key: []byte("k"), Value: []byte{byte(i)}}))(t)
		must(p.SendBatch(within(t), []kclient.Record{{Topic: "orders", Value: []byte("a")}, {Topic: "orders", Value: []byte("b")}}))(t)
	}
}

func TestSendAsyncKeepsOrderAndReportsOnce(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 3000
	c := kctest.Start(t)
	c.CreateTopic("orders", senders, 1, nil)
	p := newProducer(t, c, nil)
	var reported [senders * each]atomic.Int32
	var failed atomic.Int32
	var wg sync.WaitGroup
	for s := range senders {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				r := kclient.Record{Topic: "orders", Partition: int32(s), HasPartition: true, Value: []byte(fmt.Sprint(i))}
				p.SendAsync(context.Background(), r, func(_ kclient.Report, err error) {
					reported[s*each+i].Add(1)
					if err != nil {
						failed.Add(1)
					}
				})
			}
		}()
	}
	wg.Wait()
	check(t, p.Flush(within(t)))
	for i := range reported {
		if n := reported[i].Load(); n != 1 {
			t.Fatalf("record %d was reported %d times after the flush", i, n)
		}
	}
	if n := failed.Load(); n > 0 {
		t.Fatalf("%d failed", n)
	}
	k := newConsumer(t, c, nil)
	for s := range senders {
		check(t, k.Assign(kclient.TopicPartition{Topic: "orders", Partition: int32(s), Offset: kclient.OffsetBeginning}))
		for i, r := range read(t, k, each) {
			if string(r.Value) != fmt.Sprint(i) {
				t.Fatalf("partition %d: %s at %d", s, r.Value, i)
			}
		}
	}
	stats := must(p.Stats())(t)
	if stats.RecordsOK != senders*each || stats.QueuedRecords != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 2, 1, nil)
	p := newProducer(t, c, nil)
	var records []kclient.Record
	for i := range 5000 {
		records = append(records, kclient.Record{Topic: "orders", Partition: int32(i % 2), HasPartition: true, Value: []byte(strings.Repeat("x", i%300))})
	}
	records[1000].Partition = 77 // there is none
	records[2000].Value = make([]byte, 20<<20)
	short, cancel := context.WithTimeout(within(t), 20*time.Second)
	defer cancel()
	reports, err := p.SendBatch(short, records)
	if err == nil || len(reports) != len(records) {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	if !errors.Is(reports[2000].Err, kclient.ErrTooLarge) || reports[2000].Outcome != kclient.NotPersisted {
		t.Errorf("of the too large one: %+v", reports[2000])
	}
	if !errors.Is(reports[1000].Err, kclient.ErrUnknownTopicOrPartition) && !errors.Is(reports[1000].Err, kclient.ErrExpired) &&
		!errors.Is(reports[1000].Err, kclient.ErrInvalid) {
		t.Errorf("of the one without a partition: %+v", reports[1000])
	}
	next := [2]int64{}
	for i, r := range reports {
		if i == 1000 || i == 2000 {
			continue
		}
		if r.Err != nil || r.Partition != int32(i%2) || r.Offset != next[i%2] {
			t.Fatalf("report %d: %+v; offset %d was expected", i, r, next[i%2])
		}
		next[i%2]++
	}
	if reports, err := p.SendBatch(within(t), nil); err != nil || len(reports) != 0 {
		t.Errorf("an empty batch: %v %v", reports, err)
	}
}

func TestSendBatchAsync(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	p := newProducer(t, c, nil)
	came := make(chan int, 50)
	for range 50 {
		records := make([]kclient.Record, 100)
		for i := range records {
			records[i] = kclient.Record{Topic: "orders", Value: []byte("x")}
		}
		check(t, p.SendBatchAsync(within(t), records, func(reports []kclient.Report) {
			ok := 0
			for _, r := range reports {
				if r.Err == nil {
					ok++
				}
			}
			came <- ok
		}))
		clear(records) // they were copied
	}
	check(t, p.Flush(within(t)))
	for range 50 {
		if n := <-came; n != 100 {
			t.Fatalf("%d of 100", n)
		}
	}
}

func TestNobodyWantsToKnow(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	for _, options := range [][]kclient.ProducerOption{nil, {kclient.WithPartitioner(func(string, []byte, int) int { return 0 })}} {
		p := newProducer(t, c, nil, options...)
		check(t, p.SendBatchAsync(within(t), []kclient.Record{{Topic: "orders"}, {Topic: "orders"}}, nil))
		check(t, p.SendBatchAsync(within(t), nil, nil))
		p.SendAsync(within(t), kclient.Record{Topic: "orders"}, nil)
		check(t, p.Close(within(t)))
	}
	if topic := must(c.Admin().DescribeTopic(within(t), "orders"))(t); topic.Partitions[0].LogEnd != 6 {
		t.Errorf("%+v", topic.Partitions[0])
	}
}

func TestFullQueueHoldsSendersBack(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p := newProducer(t, c, kclient.Config{"queue.buffering.max.messages": 500, "linger.ms": 0})
	stalled := c.AddFault(kctest.Fault{API: "Produce", Stall: true})
	var ok, failed atomic.Int32
	refused := 0
	for i := 0; refused == 0; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		done := make(chan error, 1)
		p.SendAsync(ctx, kclient.Record{Topic: "orders", Value: []byte(fmt.Sprint(i))}, func(_ kclient.Report, err error) {
			done <- err
			if err != nil {
				failed.Add(1)
			} else {
				ok.Add(1)
			}
		})
		if ctx.Err() != nil {
			refused++
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the one without room: %v", err)
			}
		}
		cancel()
		if i > 100000 {
			t.Fatal("the queue never fills")
		}
	}
	stalled.Remove()
	c.ClearFaults()
	check(t, p.Flush(within(t)))
	if failed.Load() != 1 || ok.Load() < 500 {
		t.Errorf("%d ok, %d failed", ok.Load(), failed.Load())
	}
}

func TestCancelledSendReturnsAtOnce(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p := newProducer(t, c, nil)
	c.AddFault(kctest.Fault{API: "Produce", Stall: true})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		time.Sleep(50 * time.Millisecond)
		cancel()
	}()
	_, err := p.Send(ctx, kclient.Record{Topic: "orders", Value: []byte("x")})
	var e *kclient.Error
	if !errors.Is(err, context.Canceled) || !errors.Is(err, kclient.ErrCancelled) || !errors.As(err, &e) || e.Outcome != kclient.MaybePersisted {
		t.Errorf("%v", err)
	}
	_, err = p.Send(ctx, kclient.Record{Topic: "orders"})
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Outcome != kclient.NotPersisted {
		t.Errorf("with a context that is over: %v", err)
	}
	late, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err = p.SendBatch(late, []kclient.Record{{Topic: "orders"}}); err == nil {
		t.Error("a batch whose time is over was sent")
	}
	over, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := p.Flush(over); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
	// What is left fails, and is reported.
	told := make(chan error, 1)
	p.SendAsync(context.Background(), kclient.Record{Topic: "orders"}, func(_ kclient.Report, err error) { told <- err })
	if err := p.Close(over); err == nil {
		t.Error("the close says that all went well")
	}
	if err := <-told; err == nil {
		t.Error("the record was stored?")
	}
}

func TestErrorsHaveAHistory(t *testing.T) {
	t.Parallel()
	client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 300, "request.timeout.ms": 200}))(t)
	defer client.Close(within(t))
	p := must(kclient.NewProducer(client, nil))(t)
	report, err := p.Send(within(t), kclient.Record{Topic: "orders", Value: []byte("x")})
	var e *kclient.Error
	if !errors.As(err, &e) || e.Outcome != kclient.NotPersisted || report.Outcome != kclient.NotPersisted || report.Err == nil {
		t.Fatalf("%+v, %v", report, err)
	}
	if len(e.Attempts) == 0 || e.Attempts[0].Phase == "" || e.Attempts[0].At.IsZero() || !strings.Contains(e.Error(), e.Attempts[0].Detail) ||
		e.Message == "" || e.Name() == "" {
		t.Errorf("%+v", e)
	}
	if errors.Is(err, kclient.ErrBusy) || !errors.Is(err, e.Code) {
		t.Errorf("the code of %v", err)
	}
}

func TestReportsTellWhatARetryWasFor(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p := newProducer(t, c, nil)
	c.AddFault(kctest.Fault{API: "Produce", Times: 2, Error: "NOT_LEADER_OR_FOLLOWER"})
	// One record: several may leave in more than one request, and the rule strikes two.
	reports := must(p.SendBatch(within(t), make3("orders")[:1]))(t)
	for _, r := range reports {
		if len(r.Attempts) != 2 || r.Attempts[1].Cause != kclient.ErrNotLeaderOrFollower || r.Attempts[0].Phase == "" || r.Offset < 0 {
			t.Errorf("%+v", r)
		}
	}
	if r := must(p.Send(within(t), kclient.Record{Topic: "orders"}))(t); r.Attempts != nil || r.Offset != 1 {
		t.Errorf("%+v", r)
	}
	c.AddFault(kctest.Fault{API: "Produce", Error: "NOT_LEADER_OR_FOLLOWER"})
	r, err := p.Send(within(t), kclient.Record{Topic: "orders", Timeout: 500 * time.Millisecond})
	var e *kclient.Error
	if !errors.As(err, &e) || len(e.Attempts) == 0 || !slices.Equal(e.Attempts, r.Attempts) {
		t.Errorf("%+v %+v", err, r)
	}
}

func make3(topic string) []kclient.Record {
	return []kclient.Record{{Topic: topic}, {Topic: topic}, {Topic: topic}}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	_, err := kclient.NewClient(kclient.Config{"bootstrap.servers": "x:1", "linger.mss": 5})
	if !errors.Is(err, kclient.ErrConfig) || !strings.Contains(err.Error(), "linger.ms") {
		t.Errorf("a wrong name: %v", err)
	}
	for name, value := range map[string]any{"linger.ms": struct{}{}, "acks": "several", "client.thread": "none", "client.id": time.Second} {
		if _, err := kclient.NewClient(kclient.Config{"bootstrap.servers": "x:1", name: value}); !errors.Is(err, kclient.ErrConfig) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := kclient.NewProducer(nil, nil); !errors.Is(err, kclient.ErrInvalid) {
		t.Errorf("%v", err)
	}
	client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": "127.0.0.1:1"}))(t)
	defer client.Close(within(t))
	p := must(kclient.NewProducer(client, nil))(t)
	for _, topic := range []string{"", "a b", "nul\x00", strings.Repeat("x", 250)} {
		if _, err := p.Send(within(t), kclient.Record{Topic: topic}); !errors.Is(err, kclient.ErrInvalid) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	if len(kclient.Properties()) < 50 || kclient.Version() == "" {
		t.Error("the table of properties")
	}
}

func TestCloseReportsEverything(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	client := c.Client(nil)
	p := must(kclient.NewProducer(client, kclient.Config{"linger.ms": 10 * time.Minute}))(t)
	var ok atomic.Int32
	for range 1000 {
		p.SendAsync(within(t), kclient.Record{Topic: "orders", Value: []byte("x")}, func(_ kclient.Report, err error) {
			if err == nil {
				ok.Add(1)
			}
		})
	}
	check(t, client.Close(within(t))) // closes the producer first
	if n := ok.Load(); n != 1000 {
		t.Errorf("%d of 1000", n)
	}
}

func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	client := c.Client(nil)
	p := must(kclient.NewProducer(client, nil))(t)
	k := must(kclient.NewConsumer(client, kclient.Config{"group.id": "g"}))(t)
	admin := kclient.NewAdmin(client)
	must(p.Send(within(t), kclient.Record{Topic: "orders"}))(t)
	check(t, client.Close(within(t)))
	check(t, client.Close(within(t)))
	check(t, p.Close(within(t)))
	check(t, k.Close(within(t)))
	ctx := within(t)
	orders := kclient.TopicPartition{Topic: "orders"}
	for name, call := range map[string]func() error{
		"Send":      func() error { _, err := p.Send(ctx, kclient.Record{Topic: "orders"}); return err },
		"SendBatch": func() error { _, err := p.SendBatch(ctx, []kclient.Record{{Topic: "orders"}}); return err },
		"SendAsync": func() error {
			done := make(chan error)
			p.SendAsync(ctx, kclient.Record{Topic: "new"}, func(_ kclient.Report, err error) { done <- err })
			return <-done
		},
		"Flush":         func() error { return p.Flush(ctx) },
		"Purge":         func() error { return p.Purge(true) },
		"Stats":         func() error { _, err := p.Stats(); return err },
		"NewGUID":       func() error { _, err := p.NewGUID(); return err },
		"Poll":          func() error { _, err := k.Poll(ctx); return err },
		"PollBatch":     func() error { _, err := k.PollBatch(ctx); return err },
		"PollBorrowed":  func() error { _, err := k.PollBorrowed(ctx); return err },
		"Subscribe":     func() error { return k.Subscribe("orders") },
		"Unsubscribe":   func() error { return k.Unsubscribe() },
		"Assign":        func() error { return k.Assign(orders) },
		"Seek":          func() error { return k.Seek(orders) },
		"Pause":         func() error { return k.Pause(orders) },
		"Position":      func() error { _, err := k.Position(orders); return err },
		"Commit":        func() error { _, err := k.Commit(ctx, orders); return err },
		"Committed":     func() error { _, err := k.Committed(ctx, orders); return err },
		"Offsets":       func() error { _, err := k.Offsets(ctx, orders); return err },
		"AwaitAssigned": func() error { return k.AwaitAssigned(ctx) },
		"Why":           func() error { _, err := k.Why(); return err },
		"Describe":      func() error { _, err := admin.DescribeCluster(ctx); return err },
		"NewProducer":   func() error { _, err := kclient.NewProducer(client, nil); return err },
		"NewConsumer":   func() error { _, err := kclient.NewConsumer(client, nil); return err },
		"Records": func() error {
			for _, err := range k.Records(ctx) {
				return err
			}
			return nil
		},
	} {
		if err := call(); !errors.Is(err, kclient.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls and closes of the same handles at the same moment: answers are good, or say closed.
func TestCloseWhileInUse(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	for range 5 {
		client := c.Client(nil)
		p := must(kclient.NewProducer(client, nil))(t)
		k := must(kclient.NewConsumer(client, kclient.Config{"auto.offset.reset": "earliest"}))(t)
		check(t, k.Assign(kclient.TopicPartition{Topic: "orders", Offset: kclient.OffsetBeginning}))
		var wg sync.WaitGroup
		loop := func(f func() error) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					if err := f(); errors.Is(err, kclient.ErrClosed) {
						return
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		var sent, told atomic.Int64
		loop(func() error {
			_, err := p.Send(within(t), kclient.Record{Topic: "orders", Value: []byte("x")})
			return err
		})
		loop(func() error { _, err := p.Stats(); return err })
		loop(func() error { _, err := k.PollBatch(within(t)); return err })
		loop(func() error { _, err := k.Position(kclient.TopicPartition{Topic: "orders"}); return err })
		loop(func() error { _, err := kclient.NewAdmin(client).DescribeCluster(within(t)); return err })
		wg.Add(1)
		go func() {
			defer wg.Done()
			over := make(chan struct{})
			var once sync.Once
			for {
				select {
				case <-over:
					return
				default:
				}
				sent.Add(1)
				p.SendAsync(within(t), kclient.Record{Topic: "orders", Value: []byte("x")}, func(_ kclient.Report, err error) {
					told.Add(1)
					if err != nil {
						once.Do(func() { close(over) })
					}
				})
			}
		}()
		time.Sleep(50 * time.Millisecond)
		check(t, client.Close(within(t)))
		wg.Wait()
		for deadline := time.Now().Add(patience); told.Load() < sent.Load() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if told.Load() != sent.Load() {
			t.Fatalf("%d of %d were reported", told.Load(), sent.Load())
		}
	}
}

// A producer that is closed while its queue is full, and nothing is answered: each record is reported, those that wait for room too.
// Closing the client waits for a Close of a producer's or consumer's that is under way.
func TestCloseDuringAClose(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": c.Bootstrap()}))(t)
	p := must(kclient.NewProducer(client, nil))(t)
	must(p.Send(within(t), kclient.Record{Topic: "orders"}))(t)
	c.AddFault(kctest.Fault{API: "Produce", DelayMS: 700})
	told := make(chan error, 1)
	p.SendAsync(within(t), kclient.Record{Topic: "orders"}, func(_ kclient.Report, err error) { told <- err })
	first := make(chan error, 1)
	go func() { first <- p.Close(within(t)) }()
	time.Sleep(200 * time.Millisecond)
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := p.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second Close: %v", err)
	}
	check(t, client.Close(within(t)))
	check(t, <-told)
	check(t, <-first)
	check(t, p.Close(within(t)))
}

// A role that is made while its client is being closed is closed with it, or not made: whoever sends by it is told.
func TestNewRolesDuringAClose(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	for range 20 {
		client := must(kclient.NewClient(kclient.Config{"bootstrap.servers": c.Bootstrap()}))(t)
		var wg sync.WaitGroup
		begun := make(chan struct{}, 1)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				p, err := kclient.NewProducer(client, nil)
				if errors.Is(err, kclient.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Send(within(t), kclient.Record{Topic: "orders"}); err != nil && errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("nobody told: %v", err)
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		}()
		<-begun
		check(t, client.Close(within(t)))
		wg.Wait()
	}
}

func TestCloseWithAFullQueue(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	c.AddFault(kctest.Fault{API: "Produce", Stall: true})
	p := newProducer(t, c, kclient.Config{"queue.buffering.max.messages": 500, "linger.ms": 0})
	var told, failed atomic.Int32
	sent := int32(0)
	for ctx := context.Context(nil); ctx == nil || ctx.Err() == nil; sent++ {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		p.SendAsync(ctx, kclient.Record{Topic: "orders", Value: []byte("x")}, func(_ kclient.Report, err error) {
			told.Add(1)
			if err != nil {
				failed.Add(1)
			}
		})
	}
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Close(short); err == nil || time.Since(began) > patience/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	eventually(t, "a report of each", func() bool { return told.Load() == sent }, func() any { return fmt.Sprint(told.Load(), " of ", sent) })
	if failed.Load() != sent {
		t.Errorf("%d of %d failed, though nothing was answered", failed.Load(), sent)
	}
}

func TestTimeoutOfARecord(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	c.AddFault(kctest.Fault{API: "Produce", Stall: true})
	p := newProducer(t, c, nil)
	_, err := p.Send(context.Background(), kclient.Record{Topic: "orders", Timeout: 100 * time.Millisecond})
	var e *kclient.Error
	if !errors.Is(err, kclient.ErrExpired) || !errors.As(err, &e) || e.Outcome != kclient.MaybePersisted || len(e.Attempts) == 0 {
		t.Errorf("%v", err)
	}
	if err := p.Fatal(); err != nil {
		t.Errorf("%v", err)
	}
}

// Reports of records that are stored, refused, and never taken come one at a time: what they call needs no lock. (The race detector sees it otherwise.)
func TestReportsComeOneAtATime(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	p := newProducer(t, c, nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	told := 0
	count := func(kclient.Report, error) { told++ }
	for range 40 {
		p.SendAsync(within(t), kclient.Record{Topic: "orders", Value: []byte("x")}, count)
		p.SendAsync(within(t), kclient.Record{Topic: "not a name"}, count)
		p.SendAsync(within(t), kclient.Record{Topic: "orders", Value: make([]byte, 2<<20)}, count)
		p.SendAsync(over, kclient.Record{Topic: "orders"}, count)
		check(t, p.SendBatchAsync(within(t), nil, func([]kclient.Report) { told++ }))
	}
	check(t, p.Flush(within(t)))
	if told != 200 {
		t.Errorf("%d of 200", told)
	}
}
