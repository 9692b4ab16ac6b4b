package kctest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Fault is a fault rule: which requests, how often, and what happens to them. Its fields are the JSON's of `kbroker fault add`
// (broker-ref/README.md, Fault rules); what is zero is not said.
type Fault struct {
	// Which requests. API: a name ("Produce"), or a key as text; "": any. Partition, Broker: nil any.
	API       string `json:"api,omitempty"`
	Versions  []int  `json:"versions,omitempty"` // one, or the first and the last
	ClientID  string `json:"client_id,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Group     string `json:"group,omitempty"` // that the request names
	From      string `json:"from,omitempty"`  // "clients", or "nodes": the cluster's own; "": both
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
	Error      string `json:"error,omitempty"` // a name, or a number as text
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

// named is a name, or a number as text, which JSON has as a number.
type named string

func (n named) MarshalJSON() ([]byte, error) {
	if number, err := strconv.Atoi(string(n)); err == nil {
		return json.Marshal(number)
	}
	return json.Marshal(string(n))
}

func (n *named) UnmarshalJSON(text []byte) error {
	var name string
	if json.Unmarshal(text, &name) != nil {
		name = string(text)
	}
	*n = named(name)
	return nil
}

// span is versions, of which JSON has one as a number, and two as a list.
type span []int

func (s span) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]int(s))
}

func (s *span) UnmarshalJSON(text []byte) error {
	var one int
	if json.Unmarshal(text, &one) == nil {
		*s = span{one}
		return nil
	}
	return json.Unmarshal(text, (*[]int)(s))
}

// What JSON has of a rule: the fields that differ from the Fault's are in front of them.
type plainFault Fault

type faultJSON struct {
	API      named `json:"api,omitempty"`
	Versions span  `json:"versions,omitempty"`
	Error    named `json:"error,omitempty"`
	*plainFault
}

// MarshalJSON gives the rule as kbroker takes it.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultJSON{named(f.API), f.Versions, named(f.Error), (*plainFault)(&f)})
}

// UnmarshalJSON reads a rule as kbroker tells it.
func (f *Fault) UnmarshalJSON(text []byte) error {
	in := faultJSON{plainFault: (*plainFault)(f)}
	err := json.Unmarshal(text, &in)
	f.API, f.Versions, f.Error = string(in.API), in.Versions, string(in.Error)
	return err
}

// FaultHandle is a rule that was added. It stays until it is removed, or its nodes end: one that starts again has none.
type FaultHandle struct {
	c  *Cluster
	at map[int]placed // by node

	mu   sync.Mutex
	hits map[int]int64 // known last, by node
}

// placed is where a node has a rule: its number counts for the life of that process.
type placed struct{ number, pid int }

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
	now, err := c.describe()
	if err != nil {
		return nil, err
	}
	h := &FaultHandle{c: c, at: map[int]placed{}, hits: map[int]int64{}}
	for _, n := range answer.Nodes {
		h.at[n.ID] = placed{n.First, now.pid(n.ID)}
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

// own gives the states of the rule, on those of its nodes that still are the processes it was added to, and answer.
func (h *FaultHandle) own() []FaultState {
	if h.c.t != nil {
		h.c.t.Helper()
	}
	now := h.c.Describe()
	var all []FaultState
	for _, f := range h.c.Faults() {
		if at, ok := h.at[f.Node]; ok && at.number == f.Number && at.pid != 0 && at.pid == now.pid(f.Node) {
			all = append(all, f)
		}
	}
	return all
}

// Hits is how often the rule has struck, on all its nodes together; of those that cannot be asked (any more) what was known last.
func (h *FaultHandle) Hits() int64 {
	if h.c.t != nil {
		h.c.t.Helper()
	}
	own := h.own()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range own {
		h.hits[f.Node] = f.Hits
	}
	var sum int64
	for _, hits := range h.hits {
		sum += hits
	}
	return sum
}

// Remove takes the rule away from its nodes that run; who was stalled by it goes on. A rule that is gone already is no error.
func (h *FaultHandle) Remove() {
	if h.c.t != nil {
		h.c.t.Helper()
	}
	h.Hits() // to be told afterwards, too
	for _, f := range h.own() {
		h.c.fail(h.c.call("DELETE", "/faults"+query([]int{f.Node}, f.Number), nil, nil))
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
