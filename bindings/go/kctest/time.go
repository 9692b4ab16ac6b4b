package kctest

import (
	"net/url"
	"time"
)

// Advance has the time of policies jump, on all nodes: retention, sessions, rebalances, windows. What is due by then has happened, or is under way,
// when it returns. The cluster must have been started with [VirtualClock].
func (c *Cluster) Advance(d time.Duration) {
	if c.t != nil {
		c.t.Helper()
	}
	c.fail(c.call("POST", "/clock", map[string]any{"advance_ms": d.Milliseconds()}, nil))
}

// Now is the cluster's wall clock.
func (c *Cluster) Now() time.Time {
	if c.t != nil {
		c.t.Helper()
	}
	var answer struct {
		WallMS int64 `json:"wall_ms"`
	}
	c.fail(c.call("GET", "/clock", nil, &answer))
	return time.UnixMilli(answer.WallMS)
}

// Snapshot is a copy of the whole cluster's state.
type Snapshot struct {
	Name  string  `json:"name"`
	Bytes int64   `json:"bytes"`
	MS    float64 `json:"ms"` // what it took
}

// SaveSnapshot keeps what a kill of all nodes at this moment would leave. A name with a slash is a path, for [FromSnapshot]; one without is of this
// cluster.
func (c *Cluster) SaveSnapshot(name string) Snapshot { return c.snapshot("save", name) }

// RestoreSnapshot puts the cluster back to a snapshot: its nodes are killed and start again, at the same addresses. It returns when all serve.
func (c *Cluster) RestoreSnapshot(name string) Snapshot { return c.snapshot("restore", name) }

func (c *Cluster) snapshot(what, name string) Snapshot {
	if c.t != nil {
		c.t.Helper()
	}
	var s Snapshot
	c.fail(c.call("POST", "/snapshots", map[string]string{what: name}, &s))
	return s
}

// DeleteSnapshot deletes one.
func (c *Cluster) DeleteSnapshot(name string) {
	if c.t != nil {
		c.t.Helper()
	}
	c.fail(c.call("DELETE", "/snapshots?"+url.Values{"name": {name}}.Encode(), nil, nil))
}
