package kctest

import (
	"context"
	"fmt"
	"slices"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
)

// until calls look until it says that it is so; what it saw last is in the error.
func (c *Cluster) until(what string, look func() (bool, string)) {
	if c.t != nil {
		c.t.Helper()
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.timeout)
	defer cancel()
	var seen string
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		is, now := look()
		if is {
			return
		}
		seen = now
		select {
		case <-ctx.Done():
			c.fail(fmt.Errorf("%s did not come about within %v; seen last: %s", what, c.s.timeout, seen))
			return
		case <-time.After(pause):
		}
	}
}

// partition gives a partition as the cluster has it now; text: what is seen of it.
func (c *Cluster) partition(topic string, partition int) (p kclient.Partition, there bool, text string) {
	admin, err := c.admin()
	if err != nil {
		return p, false, err.Error()
	}
	// Not the time of the waiting: at its end, too, it is to be seen what there is.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cluster, err := admin.DescribeCluster(ctx)
	if err != nil {
		return p, false, err.Error()
	}
	for _, t := range cluster.Topics {
		if t.Name != topic {
			continue
		}
		for _, p := range t.Partitions {
			if int(p.ID) == partition {
				return p, true, fmt.Sprintf("leader %d, ISR %v, replicas %v", p.Leader, p.ISR, p.Replicas)
			}
		}
		return p, false, fmt.Sprintf("%s has %d partitions", topic, len(t.Partitions))
	}
	return p, false, fmt.Sprintf("there is no topic %s", topic)
}

// WaitForLeader waits until a partition has a leader: one of these, or any; -1: none leads. It returns who does.
func (c *Cluster) WaitForLeader(topic string, partition int, leaders ...int) int {
	if c.t != nil {
		c.t.Helper()
	}
	leader := -1
	what := fmt.Sprintf("a leader of %s[%d]", topic, partition)
	if len(leaders) > 0 {
		what = fmt.Sprintf("leader %v of %s[%d]", leaders, topic, partition)
	}
	c.until(what, func() (bool, string) {
		p, there, text := c.partition(topic, partition)
		leader = int(p.Leader)
		return there && (len(leaders) == 0 && leader >= 0 || slices.Contains(leaders, leader)), text
	})
	return leader
}

// WaitForISR waits until exactly these brokers are in sync.
func (c *Cluster) WaitForISR(topic string, partition int, brokers ...int) {
	if c.t != nil {
		c.t.Helper()
	}
	want := slices.Clone(brokers)
	slices.Sort(want)
	c.until(fmt.Sprintf("ISR %v of %s[%d]", want, topic, partition), func() (bool, string) {
		p, there, text := c.partition(topic, partition)
		var isr []int
		for _, id := range p.ISR {
			isr = append(isr, int(id))
		}
		slices.Sort(isr)
		return there && slices.Equal(isr, want), text
	})
}

// WaitForAssigned waits until the group has given a consumer its partitions, if only none. Polling may go on in another goroutine meanwhile.
func (c *Cluster) WaitForAssigned(consumer *kclient.Consumer) {
	if c.t != nil {
		c.t.Helper()
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.timeout)
	defer cancel()
	c.fail(consumer.AwaitAssigned(ctx))
}
