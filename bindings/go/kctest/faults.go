package kctest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Fault is a fault rule: which requests, how often, and what happens to them. Its fields are the JSON's of `kbroker fault add`
// (broker-ref/README.md, Fault rules); what is zero is not said.
type Fault struct {
	// Which requests. API: a name ("Produce"); "": any. Partition, Broker: nil any.
	API       string `json:"api,omitempty"`
	Versions  []int  `json:"versions,omitempty"` // one, or the first and the last
	ClientID  string `json:"client_id,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int   `json:"partition,omitempty"`
	Broker    *int   `json:"broker,omitempty"`
	// How often. Without Nth, Every and Percent: all.
	After   int     `json:"after,omitempty"` // the first so many are let pass
	Nth     int     `json:"nth,omitempty"`
	Every   int     `json:"every,omitempty"`
	Percent float64 `json:"percent,omitempty"`
	Times   int     `json:"times,omitempty"` // at most
	// What happens. When: "before" (default) the effect, or "after" it.
	When       string `json:"when,omitempty"`
	Error      string `json:"error,omitempty"`
	Close      bool   `json:"close,omitempty"`
	Stall      bool   `json:"stall,omitempty"`
	DelayMS    int    `json:"delay_ms,omitempty"`
	ThrottleMS int    `json:"throttle_ms,omitempty"`
	DripBytes  int    `json:"drip_bytes_per_s,omitempty"`
	Corrupt    *int   `json:"corrupt,omitempty"` // the byte of the answer; negative: from its end
	// Instead of requests: operations on the files of logs, "read", "write" or "sync".
	Disk string `json:"disk,omitempty"`
	Note string `json:"note,omitempty"`
}

// P is for fields of a [Fault] that may be zero and meant.
func P(n int) *int { return &n }

// FaultHandle is a rule that was added.
type FaultHandle struct {
	c     *Cluster
	first map[int]int // its number, by node
}

// AddFault adds a rule on nodes; none: on all that run.
func (c *Cluster) AddFault(rule Fault, nodes ...int) *FaultHandle {
	if c.t != nil {
		c.t.Helper()
	}
	h, err := c.TryFault(rule, nodes...)
	c.fail(err)
	return h
}

// TryFault is AddFault that gives an error, for rules that may be malformed: it names the field.
func (c *Cluster) TryFault(rule any, nodes ...int) (*FaultHandle, error) {
	var answer struct {
		Nodes []struct{ ID, First int }
	}
	if err := c.call("POST", "/faults"+query(nodes, 0), map[string]any{"rules": []any{rule}}, &answer); err != nil {
		return nil, err
	}
	h := &FaultHandle{c, map[int]int{}}
	for _, n := range answer.Nodes {
		h.first[n.ID] = n.First
	}
	return h, nil
}

// FaultState is a rule of a node.
type FaultState struct {
	Node   int
	Number int   `json:"number"`
	Seen   int64 `json:"seen"` // requests that it fits
	Hits   int64 `json:"hits"` // strikes
	Rule   Fault `json:"rule"`
}

// Faults gives the rules of nodes; none: of all that run.
func (c *Cluster) Faults(nodes ...int) []FaultState {
	if c.t != nil {
		c.t.Helper()
	}
	var answer struct {
		Nodes []struct {
			ID    int
			Rules []FaultState
		}
	}
	c.fail(c.call("GET", "/faults"+query(nodes, 0), nil, &answer))
	var all []FaultState
	for _, n := range answer.Nodes {
		for _, r := range n.Rules {
			r.Node = n.ID
			all = append(all, r)
		}
	}
	return all
}

// ClearFaults takes all rules away from nodes; none: from all that run.
func (c *Cluster) ClearFaults(nodes ...int) {
	if c.t != nil {
		c.t.Helper()
	}
	c.fail(c.call("DELETE", "/faults"+query(nodes, 0), nil, nil))
}

// Hits is how often the rule has struck, on all its nodes that run.
func (h *FaultHandle) Hits() int64 {
	if h.c.t != nil {
		h.c.t.Helper()
	}
	var hits int64
	for _, f := range h.c.Faults() {
		if number, ok := h.first[f.Node]; ok && number == f.Number {
			hits += f.Hits
		}
	}
	return hits
}

// Remove takes the rule away from its nodes that run; who was stalled by it goes on. A rule that is gone already is no error.
func (h *FaultHandle) Remove() {
	if h.c.t != nil {
		h.c.t.Helper()
	}
	for _, f := range h.c.Faults() {
		if number, ok := h.first[f.Node]; ok && number == f.Number {
			h.c.fail(h.c.call("DELETE", "/faults"+query([]int{f.Node}, number), nil, nil))
		}
	}
}

// query is of nodes and a rule's number; 0: none.
func query(nodes []int, rule int) string {
	v := url.Values{}
	if len(nodes) > 0 {
		ids := make([]string, len(nodes))
		for i, n := range nodes {
			ids[i] = strconv.Itoa(n)
		}
		v.Set("node", strings.Join(ids, ","))
	}
	if rule > 0 {
		v.Set("rule", strconv.Itoa(rule))
	}
	if len(v) == 0 {
		return ""
	}
	return fmt.Sprintf("?%s", strings.ReplaceAll(v.Encode(), "%2C", ","))
}
