package kclient_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

var beginning = kclient.TopicPartition{Topic: "numbers", Offset: kclient.OffsetBeginning}

func numbers(t testing.TB, n int, options ...kctest.Option) (*kctest.Cluster, *kclient.Consumer) {
	c := kctest.Start(t, options...)
	c.CreateTopic("numbers", 1, 1, nil)
	fill(t, c, "numbers", 0, n)
	k := newConsumer(t, c, nil)
	check(t, k.Assign(beginning))
	return c, k
}

func TestRecordsLosesNothingWhenTheLoopIsLeft(t *testing.T) {
	t.Parallel()
	_, k := numbers(t, 1000)
	next := 0
	expect := func(value []byte) {
		t.Helper()
		if string(value) != fmt.Sprint(next) {
			t.Fatalf("%s came, not %d", value, next)
		}
		next++
	}
	for round := range 20 { // left by a break, and by a panic
		func() {
			defer func() { _ = recover() }()
			for r, err := range k.Records(within(t)) {
				check(t, err)
				expect(r.Value)
				if next%7 == 0 && round%2 == 0 {
					break
				} else if next%7 == 0 {
					panic("in the loop")
				}
			}
		}()
	}
	b := must(k.PollBatch(within(t)))(t) // the rest of the batch
	if b.Len() == 0 || b.NextOffset != 1000 {
		t.Fatalf("%d, up to %d", b.Len(), b.NextOffset)
	}
	for r := range b.All() {
		expect(r.Value)
	}
	if next != 1000 {
		t.Errorf("%d of 1000", next)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	_, k := numbers(t, 5000)
	kept := map[int64][]byte{}
	for next := int64(0); next < 5000; {
		b := must(k.PollBatch(within(t)))(t)
		if b.Topic != "numbers" || b.Partition != 0 || b.HighWatermark != 5000 {
			t.Fatalf("%+v", b)
		}
		for i := range b.Len() {
			if b.Offset(i) != next || string(b.Value(i)) != fmt.Sprint(next) || b.Key(i) != nil {
				t.Fatalf("%d at %d", b.Offset(i), next)
			}
			kept[next] = b.Value(i)
			next++
		}
	}
	check(t, k.Seek(beginning))
	for next := int64(0); next < 5000; {
		b := must(k.PollBorrowed(within(t)))(t)
		for i := range b.Len() {
			if string(b.Value(i)) != string(kept[next]) {
				t.Fatalf("%s at %d, %s before", b.Value(i), next, kept[next])
			}
			next++
		}
		b.Release()
		b.Release()
		if b.Len() != 0 {
			t.Fatal("it shows what it has given back")
		}
	}
}

func TestSeekInALoop(t *testing.T) {
	t.Parallel()
	_, k := numbers(t, 100)
	seen := 0
	for r, err := range k.Records(within(t)) {
		check(t, err)
		seen++
		switch {
		case seen == 3:
			check(t, k.Seek(kclient.TopicPartition{Topic: "numbers", Offset: 50}))
		case seen == 4 && r.Offset != 50:
			t.Fatalf("%d came after the seek to 50", r.Offset)
		case seen == 5: // of another partition: changes nothing here
			if err := k.Seek(kclient.TopicPartition{Topic: "numbers", Partition: 7, Offset: 3}); !errors.Is(err, kclient.ErrNotAssigned) {
				t.Fatal(err)
			}
		case seen == 6 && r.Offset != 52:
			t.Fatalf("%d came", r.Offset)
		case seen == 7:
			check(t, k.Assign(kclient.TopicPartition{Topic: "numbers", Offset: kclient.OffsetReset})) // goes on where it is
		case seen == 8 && r.Offset != 54:
			t.Fatalf("%d came", r.Offset)
		}
		if seen == 8 {
			break
		}
	}
	check(t, k.Assign())
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	for r, err := range k.Records(short) {
		if err == nil {
			t.Fatalf("%d came of what is not assigned", r.Offset)
		}
	}
}

func TestPollEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, k := numbers(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		time.Sleep(50 * time.Millisecond)
		if _, err := k.PollBatch(context.Background()); !errors.Is(err, kclient.ErrBusy) {
			t.Errorf("a second poll: %v", err)
		}
		cancel()
	}()
	if _, err := k.PollBatch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	n := 0
	for _, err := range k.Records(ctx) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if n != 1 {
		t.Errorf("it was told %d times", n)
	}
}

func TestPauseLagPositionWhy(t *testing.T) {
	t.Parallel()
	_, k := numbers(t, 100)
	read(t, k, 100)
	here := kclient.TopicPartition{Topic: "numbers"}
	if p := must(k.Position(here))(t); p[0].Offset != 100 {
		t.Errorf("position %v", p)
	}
	if p := must(k.Lag(here))(t); p[0].Offset != 0 {
		t.Errorf("lag %v", p)
	}
	check(t, k.Pause(here))
	check(t, k.Seek(beginning))
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := k.PollBatch(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while paused: %v", err)
	}
	why := must(k.Why())(t)
	if len(why) != 1 || why[0].Topic != "numbers" || why[0].State != 1 || why[0].Text == "" {
		t.Errorf("%+v", why)
	}
	check(t, k.Resume(here))
	read(t, k, 100)
	found := must(k.Offsets(within(t), beginning, kclient.TopicPartition{Topic: "numbers", Offset: kclient.OffsetEnd},
		kclient.TopicPartition{Topic: "numbers", Offset: 0}))(t)
	if found[0].Offset != 0 || found[1].Offset != 100 || found[2].Offset != 0 {
		t.Errorf("%v", found)
	}
	if _, err := k.Position(kclient.TopicPartition{Topic: "numbers", Partition: 9}); !errors.Is(err, kclient.ErrNotAssigned) {
		t.Errorf("%v", err)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 10)
	k := newConsumer(t, c, kclient.Config{"group.id": "g", "enable.partition.eof": true})
	check(t, k.Subscribe("numbers"))
	assigned := must(k.Poll(within(t)))(t).(*kclient.Assigned)
	if len(assigned.Partitions) != 1 || assigned.Partitions[0].Topic != "numbers" {
		t.Fatalf("%+v", assigned)
	}
	if _, limited := assigned.Deadline(); !limited {
		t.Error("an assignment can wait for ever?")
	}
	check(t, k.Seek(kclient.TopicPartition{Topic: "numbers", Offset: 7}))
	check(t, assigned.Ack())
	if b := must(k.Poll(within(t)))(t).(*kclient.Batch); b.Offset(0) != 7 || b.Len() != 3 {
		t.Fatalf("%d from %d", b.Len(), b.Offset(0))
	}
	if end := must(k.Poll(within(t)))(t).(*kclient.PartitionEnd); end.Offset != 10 {
		t.Fatalf("%+v", end)
	}
	check(t, k.Seek(kclient.TopicPartition{Topic: "numbers", Offset: 5000})) // beyond the end
	e := newConsumer(t, c, kclient.Config{"auto.offset.reset": "error"})
	check(t, e.Assign(kclient.TopicPartition{Topic: "numbers", Offset: 5000}))
	_, err := e.PollBatch(within(t))
	var told *kclient.ConsumerError
	if !errors.As(err, &told) || !errors.Is(err, kclient.ErrOffsetOutOfRange) || told.Topic != "numbers" {
		t.Errorf("%v", err)
	}
}

// Two members share the partitions; each is told what it gets and gives up; what is processed is committed.
func TestGroup(t *testing.T) {
	t.Parallel()
	const partitions, each = 4, 50
	c := kctest.Start(t)
	c.CreateTopic("numbers", partitions, 1, nil)
	for p := range partitions {
		fill(t, c, "numbers", int32(p), each)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var has [2]map[int32]bool
	member := func(i int) *kclient.Consumer {
		has[i] = map[int32]bool{}
		k := newConsumer(t, c, kclient.Config{"group.id": "g", "auto.commit.interval.ms": 50},
			kclient.WithAssigned(func(_ *kclient.Consumer, e *kclient.Assigned) {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range e.Partitions {
					has[i][p.Partition] = true
				}
			}),
			kclient.WithRevoked(func(k *kclient.Consumer, e *kclient.Revoked) {
				if _, err := k.Commit(within(t)); err != nil {
					t.Errorf("committing what is given up: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, p := range e.Partitions {
					delete(has[i], p.Partition)
				}
			}))
		check(t, k.Subscribe("numbers"))
		return k
	}
	var wg sync.WaitGroup
	poll := func(k *kclient.Consumer, ctx context.Context) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for r, err := range k.Records(ctx) {
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				} else if err == nil {
					mu.Lock()
					seen[fmt.Sprint(r.Partition, "/", r.Offset)]++
					mu.Unlock()
				}
			}
		}()
	}
	until := func(what string, f func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			is := f()
			mu.Unlock()
			if is {
				return
			}
		}
		t.Fatalf("%s did not come about: %v, %d seen", what, has, len(seen))
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := member(0)
	poll(first, ctx)
	c.WaitForAssigned(first)
	until("all for the first member", func() bool { return len(has[0]) == partitions && len(seen) == partitions*each })
	second := member(1)
	poll(second, ctx)
	until("half for each", func() bool { return len(has[0]) == 2 && len(has[1]) == 2 })
	if g, id := second.Member(); g < 1 || id == "" {
		t.Errorf("member %q of generation %d", id, g)
	}
	for p := range partitions {
		fill(t, c, "numbers", int32(p), each)
	}
	until("the others", func() bool { return len(seen) == 2*partitions*each })
	cancel()
	wg.Wait()
	check(t, first.Close(within(t)))
	check(t, second.Close(within(t)))
	// Left without another poll, the last batch of each is not processed; what is beyond it must be.
	offsets := must(c.Admin().GroupOffsets(within(t), "g"))(t)
	if len(offsets) != partitions {
		t.Fatalf("%v", offsets)
	}
	for _, o := range offsets {
		if o.Offset < each {
			t.Errorf("%v", o)
		}
	}
}

func TestCommit(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 100)
	here := kclient.TopicPartition{Topic: "numbers"}
	k := newConsumer(t, c, kclient.Config{"group.id": "g", "enable.auto.commit": false}, kclient.WithExplicitProcessed())
	check(t, k.Subscribe("numbers"))
	for r, err := range k.Records(within(t)) {
		check(t, err)
		if r.Offset == 9 {
			check(t, k.CommitRecord(within(t), &r))
		}
		if r.Offset == 19 {
			check(t, k.ProcessedRecord(&r))
			break
		}
	}
	if p := must(k.Committed(within(t), here))(t); p[0].Offset != 10 {
		t.Errorf("%v", p)
	}
	if p := must(k.Commit(within(t)))(t); len(p) != 1 || p[0].Offset != 20 {
		t.Errorf("%v", p)
	}
	with := here
	with.Offset, with.Metadata = 33, "half way"
	must(k.Commit(within(t), with))(t)
	if p := must(k.Committed(within(t), here))(t); p[0].Offset != 33 || p[0].Metadata != "half way" {
		t.Errorf("%+v", p)
	}
	out, err := k.Commit(within(t), kclient.TopicPartition{Topic: "numbers", Partition: 5, Offset: 1}, kclient.TopicPartition{Topic: "numbers",
		Offset: 40})
	if !errors.Is(err, kclient.ErrNotAssigned) || len(out) != 2 || out[0].Err == nil || out[1].Err != nil {
		t.Errorf("%v %+v", err, out)
	}
	check(t, k.Unsubscribe())
	if _, err := newConsumer(t, c, nil).Commit(within(t), with); !errors.Is(err, kclient.ErrConfig) {
		t.Errorf("without a group: %v", err)
	}
}

// In the middle of a batch Commit commits what has been given out; so does another member go on there.
func TestCommitInTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 100)
	k := newConsumer(t, c, kclient.Config{"group.id": "g"})
	check(t, k.Subscribe("numbers"))
	committed := func() int64 {
		t.Helper()
		return must(k.Committed(within(t), kclient.TopicPartition{Topic: "numbers"}))(t)[0].Offset
	}
	must(k.Commit(within(t)))(t) // nothing yet
	for r, err := range k.Records(within(t)) {
		check(t, err)
		if out := must(k.Commit(within(t)))(t); len(out) != 1 || out[0].Offset != r.Offset+1 || committed() != r.Offset+1 {
			t.Fatalf("%v was committed at %d", out, r.Offset)
		}
		if r.Offset == 2 {
			break
		}
	}
	b := must(k.PollBatch(within(t)))(t)
	must(k.Commit(within(t)))(t)
	if committed() != b.NextOffset {
		t.Errorf("%d after a batch up to %d", committed(), b.NextOffset)
	}
	check(t, k.Seek(kclient.TopicPartition{Topic: "numbers", Offset: 40}))
	read(t, k, 1)
	check(t, k.Seek(kclient.TopicPartition{Topic: "numbers", Offset: 50})) // what was given out before does not count any more
	must(k.Commit(within(t)))(t)
	if at := committed(); at == 41 {
		t.Errorf("%d was committed after a seek", at)
	}
	check(t, k.Close(within(t)))
}

func TestSubscribeRegex(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 10)
	k := newConsumer(t, c, kclient.Config{"group.id": "g"})
	if err := k.SubscribeRegex("("); !errors.Is(err, kclient.ErrInvalid) {
		t.Errorf("%v", err)
	}
	check(t, k.SubscribeRegex("^num"))
	read(t, k, 10)
	if err := newConsumer(t, c, nil).Subscribe("numbers"); !errors.Is(err, kclient.ErrConfig) {
		t.Errorf("without group.id: %v", err)
	}
}

// A panic in a function of the options reaches the goroutine that polls, and the consumer goes on.
func TestPanicInAFunctionOfTheOptions(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 10)
	once := true
	k := newConsumer(t, c, kclient.Config{"group.id": "g"}, kclient.WithAssigned(func(*kclient.Consumer, *kclient.Assigned) {
		if once {
			once = false
			panic("at the assignment")
		}
	}))
	check(t, k.Subscribe("numbers"))
	if got := panicOf(func() { k.PollBatch(within(t)) }); got != "at the assignment" {
		t.Fatal(got)
	}
	read(t, k, 10)
	check(t, k.Close(within(t)))
}
