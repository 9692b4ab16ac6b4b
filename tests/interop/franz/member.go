package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member is a member of a group that prints `partition offset value` a record, until SIGTERM, on which it commits and leaves.
// Called by test_groups.py as `franz-peer member BOOTSTRAP GROUP TOPIC`.
func member(boot, group, topic string) error {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(boot, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(1500*time.Millisecond),
		kgo.AutoCommitInterval(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(r.Partition, r.Offset, string(r.Value)) })
	}
	end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = cl.CommitUncommittedOffsets(end)
	cl.Close()
	return err
}

func memberMain() {
	if err := member(os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
