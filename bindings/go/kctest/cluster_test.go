package kctest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func send(t testing.TB, p *kclient.Producer, topic, value string) kclient.Report {
	t.Helper()
	r, err := p.Send(within(t), kclient.Record{Topic: topic, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestManyClustersAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := kctest.Start(t)
			c.CreateTopic("orders", 1, 1, nil)
			p, err := kclient.NewProducer(c.Client(nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			if r := send(t, p, "orders", "x"); r.Offset != 0 {
				t.Errorf("another cluster's record? %+v", r)
			}
		})
	}
}

func TestNodesFail(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t, kctest.Nodes(3), kctest.Config("replica.lag.time.max.ms", 2000))
	c.CreateTopic("orders", 1, 3, map[string]string{"min.insync.replicas": "2"})
	c.WaitForISR("orders", 0, 0, 1, 2)
	p, err := kclient.NewProducer(c.Client(kclient.Config{"request.timeout.ms": 1000}), nil) // a paused node does not say that it is
	if err != nil {
		t.Fatal(err)
	}
	first := c.WaitForLeader("orders", 0)
	send(t, p, "orders", "before")
	c.Kill(first)
	if states := state(c); states[first] != "down" {
		t.Errorf("%v", states)
	}
	second := c.WaitForLeader("orders", 0, (first+1)%3, (first+2)%3)
	if r := send(t, p, "orders", "after"); r.Offset != 1 {
		t.Errorf("%+v", r)
	}
	c.Wipe(first)
	c.StartNodes(first)
	c.WaitForISR("orders", 0, 0, 1, 2)
	if s := c.Status(first); s["state"] != "ready" {
		t.Errorf("%v", s)
	}
	c.Pause(second)
	if states := state(c); states[second] != "paused" {
		t.Errorf("%v", states)
	}
	c.WaitForLeader("orders", 0, first, 3-first-second)
	send(t, p, "orders", "once more")
	c.Resume(second)
	c.WaitForISR("orders", 0, 0, 1, 2)
	c.StopNodes(second)
	c.StartNodes(second)
	c.AddNodes(3)
	if d := c.Describe(); len(d.Nodes) != 4 || d.Nodes[3].State != "up" || d.Clock != "real" || !d.Ephemeral || len(strings.Split(c.Bootstrap(),
		",")) != 4 {
		t.Errorf("%+v", d)
	}
}

func state(c *kctest.Cluster) map[int]string {
	all := map[int]string{}
	for _, n := range c.Describe().Nodes {
		all[n.ID] = n.State
	}
	return all
}

func TestFaultRules(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p, err := kclient.NewProducer(c.Client(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	busy := c.AddFault(kctest.Fault{API: "Produce", Topic: "orders", Times: 2, Error: "NOT_LEADER_OR_FOLLOWER", Note: "twice"})
	other := c.AddFault(kctest.Fault{API: "Produce", Topic: "others", Partition: kctest.P(0), Close: true}, 0)
	send(t, p, "orders", "x") // by its retries
	if busy.Hits() != 2 || other.Hits() != 0 {
		t.Errorf("%d and %d hits", busy.Hits(), other.Hits())
	}
	if all := c.Faults(0); len(all) != 2 || all[0].Rule.Note != "twice" || all[1].Rule.Partition == nil {
		t.Errorf("%+v", all)
	}
	busy.Remove()
	busy.Remove()
	if all := c.Faults(); len(all) != 1 || all[0].Rule.Topic != "others" {
		t.Errorf("%+v", all)
	}
	c.ClearFaults()
	if all := c.Faults(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	for field, rule := range map[string]any{"delay_ms": map[string]any{"api": "Fetch", "delay_ms": -1}, "aip": map[string]any{"aip": "Fetch",
		"stall": true}} {
		if _, err := c.TryFault(rule); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: %v", rule, err)
		}
	}
}

// A handle stands for its own rule: not for the one that has its number after the node came back.
func TestFaultRulesGoWithTheirNode(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p, err := kclient.NewProducer(c.Client(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := c.AddFault(kctest.Fault{API: "Produce", Times: 1, Error: "NOT_LEADER_OR_FOLLOWER"})
	send(t, p, "orders", "x")
	if gone.Hits() != 1 {
		t.Errorf("%d hits", gone.Hits())
	}
	c.Kill(0)
	c.StartNodes(0)
	other := c.AddFault(kctest.Fault{API: "Fetch", DelayMS: 1})
	if gone.Hits() != 1 || other.Hits() != 0 {
		t.Errorf("%d and %d hits", gone.Hits(), other.Hits())
	}
	gone.Remove()
	if all := c.Faults(); len(all) != 1 || all[0].Rule.API != "Fetch" {
		t.Errorf("%+v", all)
	}
}

// What the broker takes can be said, and comes back as it was said.
func TestFaultRulesInFull(t *testing.T) {
	t.Parallel()
	rules := []kctest.Fault{
		{API: "Produce", Versions: []int{9}, Error: "NOT_LEADER_OR_FOLLOWER"},
		{API: "1", Versions: []int{3, 9}, Error: "6"},
		{API: "OffsetCommit", Group: "g", From: "clients", Stall: true},
	}
	c := kctest.Start(t, kctest.Faults(rules...))
	for range 2 {
		all := c.Faults()
		if len(all) != len(rules) {
			t.Fatalf("%+v", all)
		}
		for i, rule := range rules {
			if !reflect.DeepEqual(all[i].Rule, rule) {
				t.Errorf("%+v came back as %+v", rule, all[i].Rule)
			}
		}
		c.ClearFaults()
		for _, f := range all {
			c.AddFault(f.Rule)
		}
	}
}

func TestTopicsHaveAsManyReplicasAsThereAreBrokers(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.AddNodes(1)
	c.CreateTopic("orders", 1, 0, nil)
	c.WaitForISR("orders", 0, 0, 1)
}

func TestFaultsFromTheStart(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t, kctest.Faults(kctest.Fault{API: "Produce", Times: 1, Error: "NOT_LEADER_OR_FOLLOWER"}))
	if all := c.Faults(); len(all) != 1 || all[0].Rule.Error != "NOT_LEADER_OR_FOLLOWER" {
		t.Errorf("%+v", all)
	}
}

func program(t *testing.T) string {
	if path := os.Getenv("KBROKER"); path != "" {
		return path
	}
	return "../../../build/bin/kbroker"
}

func TestVirtualClock(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t, kctest.VirtualClock(), kctest.Config("log.retention.check.interval.ms", 1000), kctest.Config("log.segment.delete.delay.ms",
		1000))
	c.CreateTopic("orders", 1, 1, map[string]string{"retention.ms": "3600000", "segment.ms": "60000"})
	p, err := kclient.NewProducer(c.Client(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	send(t, p, "orders", "old")
	before := c.Now()
	c.Advance(2 * time.Hour)
	if passed := c.Now().Sub(before); passed < 2*time.Hour {
		t.Errorf("%v passed", passed)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		topic, err := c.Admin().DescribeTopic(within(t), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if topic.Partitions[0].LogStart == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("retention did not take it: %+v", topic.Partitions[0])
		}
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("orders", 1, 1, nil)
	p, err := kclient.NewProducer(c.Client(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	send(t, p, "orders", "kept")
	path := filepath.Join(t.TempDir(), "one")
	c.SaveSnapshot("here")
	if s := c.SaveSnapshot(path); s.Bytes <= 0 {
		t.Errorf("%+v", s)
	}
	send(t, p, "orders", "not kept")
	c.RestoreSnapshot("here")
	end := func(c *kctest.Cluster) int64 {
		t.Helper()
		topic, err := c.Admin().DescribeTopic(within(t), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return topic.Partitions[0].LogEnd
	}
	c.WaitForLeader("orders", 0)
	if n := end(c); n != 1 {
		t.Errorf("%d records after the restore", n)
	}
	c.DeleteSnapshot("here")
	other := kctest.Start(t, kctest.FromSnapshot(path))
	other.WaitForLeader("orders", 0)
	if n := end(other); n != 1 {
		t.Errorf("%d records in the copy", n)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "frames")
	c := kctest.Start(t, kctest.Record(file))
	c.CreateTopic("orders", 1, 1, nil)
	out, err := exec.Command(program(t), "print", file, "--api", "CreateTopics").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"orders"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// A test that fails sees why: what is waited for, what there was instead, the nodes' logs.
func TestFailuresSayWhatWasSeen(t *testing.T) {
	t.Parallel()
	inner := &recorder{TB: t}
	c := kctest.Start(inner, kctest.Timeout(300*time.Millisecond))
	failed := func(f func()) string {
		inner.text = ""
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
		return inner.text
	}
	if text := failed(func() { c.WaitForLeader("orders", 0) }); !strings.Contains(text, "leader of orders[0]") || !strings.Contains(text,
		"no topic orders") {
		t.Errorf("%q", text)
	}
	send(t, must(kclient.NewProducer(c.Client(nil), nil))(t), "orders", "x")
	if text := failed(func() { c.WaitForISR("orders", 0, 1, 2) }); !strings.Contains(text, "ISR [1 2]") || !strings.Contains(text, "ISR [0]") {
		t.Errorf("%q", text)
	}
	k := must(kclient.NewConsumer(c.Client(nil), kclient.Config{"group.id": "g"}))(t)
	c.AddFault(kctest.Fault{API: "JoinGroup", Stall: true})
	if err := k.Subscribe("orders"); err != nil {
		t.Fatal(err)
	}
	if text := failed(func() { c.WaitForAssigned(k) }); !strings.Contains(text, "partitions") || !strings.Contains(text, "group g") {
		t.Errorf("%q", text)
	}
	if text := failed(func() { c.Kill(7) }); !strings.Contains(text, "7") {
		t.Errorf("%q", text)
	}
	c.ClearFaults()
	if logs := c.Logs(); len(logs) != 1 || !strings.Contains(logs["node-0.log"], "ready") {
		t.Errorf("%v", logs)
	}
	inner.finish()
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

// recorder is a test that fails without failing this one.
type recorder struct {
	testing.TB
	text    string
	cleanup []func()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Failed() bool     { return false }
func (r *recorder) finish() {
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	if _, err := kctest.Launch(kctest.Config("no.such.property", 1)); err == nil || !strings.Contains(err.Error(), "no.such.property") {
		t.Errorf("%v", err)
	}
	if _, err := kctest.Launch(kctest.Program("/nowhere/kbroker")); err == nil || !strings.Contains(err.Error(), "/nowhere/kbroker") {
		t.Errorf("%v", err)
	}
}

func TestAProgramThatIsNamedIsMeant(t *testing.T) {
	t.Setenv("KBROKER", "/nowhere/kbroker")
	if _, err := kctest.Launch(); err == nil || !strings.Contains(err.Error(), "/nowhere/kbroker") {
		t.Errorf("%v", err)
	}
}

// The process that started a cluster is killed: the cluster ends too.
func TestClusterEndsWithItsProcess(t *testing.T) {
	if os.Getenv("KCTEST_INNER") != "" {
		c := kctest.Start(t)
		fmt.Printf("pid %d\n", c.Describe().Nodes[0].PID)
		time.Sleep(time.Hour)
	}
	t.Parallel()
	inner := exec.Command(os.Args[0], "-test.run", "^TestClusterEndsWithItsProcess$", "-test.v")
	inner.Env = append(os.Environ(), "KCTEST_INNER=1")
	out, err := inner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for text := ""; pid == 0; {
		b := make([]byte, 1000)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b[:n])
		if at := strings.Index(text, "pid "); at >= 0 && strings.Contains(text[at:], "\n") {
			fmt.Sscanf(text[at:], "pid %d", &pid)
		}
	}
	if err := inner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = inner.Wait()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %d still runs", pid)
		}
	}
}
