package kclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func TestAdminTopics(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	a, ctx := c.Admin(), within(t)
	if r, err := a.ValidateTopics(ctx, kclient.NewTopic{Name: "orders", Partitions: 2}); err != nil || len(r) != 1 || r[0].Err != nil {
		t.Fatalf("%v %v", r, err)
	}
	if _, err := a.DescribeTopic(ctx, "orders"); !errors.Is(err, kclient.ErrUnknownTopicOrPartition) {
		t.Fatalf("validating made it: %v", err)
	}
	results, err := a.CreateTopics(ctx,
		kclient.NewTopic{Name: "orders", Partitions: 2, Configs: map[string]string{"retention.ms": "3600000"}},
		kclient.NewTopic{Name: "not a name", Partitions: 1},
		kclient.NewTopic{Name: "placed", Replicas: [][]int32{{0}, {0}, {0}}})
	if !errors.Is(err, kclient.ErrInvalidTopicException) || results[0].Err != nil || results[1].Err == nil || results[2].Err != nil ||
		results[1].Name != "not a name" {
		t.Fatalf("%v %+v", err, results)
	}
	if _, err := a.CreateTopics(ctx, kclient.NewTopic{Name: "orders"}); !errors.Is(err, kclient.ErrTopicAlreadyExists) {
		t.Errorf("%v", err)
	}
	if _, err := a.CreateTopics(ctx, kclient.NewTopic{Name: "uneven", Replicas: [][]int32{{0}, {0, 1}}}); !errors.Is(err, kclient.ErrInvalid) {
		t.Errorf("%v", err)
	}
	check(t, a.CreatePartitions(ctx, "orders", 3))
	if err := a.CreatePartitions(ctx, "orders", 1); !errors.Is(err, kclient.ErrInvalidPartitions) {
		t.Errorf("%v", err)
	}
	c.WaitForLeader("orders", 2)
	fill(t, c, "orders", 1, 10)
	topic := must(a.DescribeTopic(ctx, "orders"))(t)
	if topic.Name != "orders" || len(topic.Partitions) != 3 || topic.ID.IsZero() || topic.Internal || topic.Partitions[1].LogEnd != 10 ||
		topic.Partitions[1].Leader != 0 ||
		!slices.Equal(topic.Partitions[1].Replicas, []int32{0}) || !slices.Equal(topic.Partitions[1].ISR, []int32{0}) {
		t.Errorf("%+v", topic)
	}
	cluster := must(a.DescribeCluster(ctx))(t)
	if cluster.ID == "" || cluster.Controller != 0 || len(cluster.Brokers) != 1 || cluster.Brokers[0].Host != "127.0.0.1" || len(cluster.Topics) != 2 {
		t.Errorf("%+v", cluster)
	}
	cut := must(a.DeleteRecords(ctx, kclient.TopicPartition{Topic: "orders", Partition: 1, Offset: 4}))(t)
	if cut[0].Offset != 4 {
		t.Errorf("%v", cut)
	}
	if _, err := a.DeleteRecords(ctx, kclient.TopicPartition{Topic: "orders", Partition: 1, Offset: 400}); !errors.Is(err, kclient.ErrOffsetOutOfRange) {
		t.Errorf("%v", err)
	}
	must(a.DeleteTopics(ctx, "placed"))(t)
	if _, err := a.DeleteTopics(ctx, "placed"); !errors.Is(err, kclient.ErrUnknownTopicOrPartition) {
		t.Errorf("%v", err)
	}
}

func TestAdminConfigs(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t, kctest.Config("log.retention.hours", 5))
	c.CreateTopic("orders", 1, 1, nil)
	a, ctx := c.Admin(), within(t)
	value := func(resource kclient.Resource, name, config string) kclient.ConfigEntry {
		t.Helper()
		for _, e := range must(a.DescribeConfigs(ctx, resource, name))(t) {
			if e.Name == config {
				return e
			}
		}
		t.Fatalf("%s has no %s", name, config)
		return kclient.ConfigEntry{}
	}
	check(t, a.AlterConfigs(ctx, kclient.ResourceTopic, "orders", kclient.ConfigChange{Name: "retention.ms", Value: "60000"}))
	if e := value(kclient.ResourceTopic, "orders", "retention.ms"); e.Value != "60000" || e.Source != "topic" {
		t.Errorf("%+v", e)
	}
	check(t, a.AlterConfigs(ctx, kclient.ResourceTopic, "orders", kclient.ConfigChange{Name: "retention.ms", Op: kclient.ConfigDelete}))
	if e := value(kclient.ResourceTopic, "orders", "retention.ms"); e.Value != fmt.Sprint(5*time.Hour.Milliseconds()) {
		t.Errorf("%+v", e)
	}
	if err := a.AlterConfigs(ctx, kclient.ResourceTopic, "orders", kclient.ConfigChange{Name: "retention.ms", Value: "soon"}); !errors.Is(err,
		kclient.ErrInvalidConfig) {
		t.Errorf("%v", err)
	}
	if e := value(kclient.ResourceBroker, "0", "log.retention.hours"); e.Value != "5" {
		t.Errorf("%+v", e)
	}
}

func TestAdminOfSeveralNodes(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t, kctest.Nodes(3))
	c.CreateTopic("orders", 1, 2, nil)
	a, ctx := c.Admin(), within(t)
	part := must(a.DescribeTopic(ctx, "orders"))(t).Partitions[0]
	orders := kclient.TopicPartition{Topic: "orders"}

	quorum := must(a.DescribeQuorum(ctx))(t)
	if quorum.Leader < 0 || len(quorum.Replicas) != 3 || !quorum.Replicas[0].Voter || quorum.HighWatermark < 1 {
		t.Errorf("%+v", quorum)
	}
	dirs := must(a.DescribeLogDirs(ctx, part.Leader))(t)
	if len(dirs) != 1 || dirs[0].Err != nil || dirs[0].TotalBytes <= 0 || !slices.ContainsFunc(dirs[0].Replicas,
		func(r kclient.LogDirReplica) bool { return r.Topic == "orders" }) {
		t.Errorf("%+v", dirs)
	}
	if counts := must(a.NodeCounts(ctx, 0))(t); len(counts) == 0 {
		t.Error("no counts")
	}
	results := must(a.ElectLeaders(ctx, kclient.ElectPreferred, orders))(t)
	if len(results) != 1 || !errors.Is(results[0].Err, kclient.ErrElectionNotNeeded) {
		t.Errorf("%v", results)
	}
	if _, err := a.AlterReassignments(ctx, kclient.Reassignment{Topic: "orders"}); !errors.Is(err, kclient.ErrNoReassignmentInProgress) {
		t.Errorf("%v", err)
	}
	other := int32(3) - part.Replicas[0] - part.Replicas[1]
	must(a.AlterReassignments(ctx, kclient.Reassignment{Topic: "orders", Replicas: []int32{other, part.Replicas[0]}}))(t)
	c.WaitForISR("orders", 0, int(other), int(part.Replicas[0]))
	for deadline := time.Now().Add(patience); len(must(a.ListReassignments(ctx))(t)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the move does not end")
		}
	}
	if err := a.UnregisterBroker(ctx, 77); !errors.Is(err, kclient.ErrBrokerIDNotRegistered) {
		t.Errorf("%v", err)
	}
}

func TestAdminGroups(t *testing.T) {
	t.Parallel()
	c, _ := numbers(t, 10)
	a, ctx := c.Admin(), within(t)
	k := newConsumer(t, c, kclient.Config{"group.id": "g", "client.id": "reader"})
	check(t, k.Subscribe("numbers"))
	read(t, k, 10)
	groups := must(a.ListGroups(ctx, kclient.GroupFilter{States: []string{"stable"}}))(t)
	if len(groups) != 1 || groups[0].Group != "g" || groups[0].State != "Stable" || groups[0].ProtocolType != "consumer" {
		t.Errorf("%+v", groups)
	}
	if none := must(a.ListGroups(ctx, kclient.GroupFilter{States: []string{"Empty"}}))(t); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	described := must(a.DescribeGroups(ctx, "g", "none"))(t)
	if len(described) != 2 || len(described[0].Members) != 1 || !errors.Is(described[1].Err, kclient.ErrGroupIDNotFound) {
		t.Fatalf("%+v", described)
	}
	m := described[0].Members[0]
	if !slices.Equal(m.Topics, []string{"numbers"}) || len(m.Assigned) != 1 || m.Assigned[0].Topic != "numbers" || m.ID == "" || m.Host == "" {
		t.Errorf("%+v", m)
	}
	at := kclient.TopicPartition{Topic: "numbers", Offset: 3, Metadata: "by hand"}
	if _, err := a.AlterGroupOffsets(ctx, "g", at); !errors.Is(err, kclient.ErrUnknownMemberID) {
		t.Errorf("it has a member: %v", err)
	}
	if _, err := a.DeleteGroups(ctx, "g"); !errors.Is(err, kclient.ErrNonEmptyGroup) {
		t.Errorf("%v", err)
	}
	must(a.RemoveGroupMembers(ctx, "g", "a test", kclient.MemberToRemove{MemberID: m.ID}))(t)
	if _, err := a.RemoveGroupMembers(ctx, "g", "", kclient.MemberToRemove{MemberID: "nobody"}); !errors.Is(err, kclient.ErrUnknownMemberID) {
		t.Errorf("%v", err)
	}
	check(t, k.Close(ctx))
	must(a.AlterGroupOffsets(ctx, "g", at))(t)
	if o := must(a.GroupOffsets(ctx, "g"))(t); len(o) != 1 || o[0].Offset != 3 || o[0].Metadata != "by hand" {
		t.Errorf("%+v", o)
	}
	must(a.DeleteGroupOffsets(ctx, "g", at))(t)
	if o := must(a.GroupOffsets(ctx, "g", at))(t); len(o) != 1 || o[0].Offset != -1 {
		t.Errorf("%+v", o)
	}
	must(a.AlterGroupOffsets(ctx, "h", at))(t)
	must(a.DeleteGroups(ctx, "h"))(t)
}

func TestAdminEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	a := c.Admin()
	must(a.DescribeCluster(within(t)))(t)
	c.Pause(0)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.DescribeCluster(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kclient.ErrTimedOut) {
		t.Errorf("%v", err)
	}
	given, stop := context.WithCancel(context.Background())
	go func() { time.Sleep(20 * time.Millisecond); stop() }()
	if _, err := a.DescribeCluster(given); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	c.Resume(0)
	must(a.DescribeCluster(within(t)))(t)
}
