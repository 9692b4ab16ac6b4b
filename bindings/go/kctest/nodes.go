package kctest

import "slices"

// Node is a node of the cluster.
type Node struct {
	ID      int      `json:"id"`
	Roles   []string `json:"roles"` // "broker", "controller"
	Address string   `json:"address"`
	State   string   `json:"state"` // "up", "starting", "down", "paused"
	PID     int      `json:"pid"`
}

// Description is what the cluster says of itself.
type Description struct {
	Version   string `json:"version"`
	Bootstrap string `json:"bootstrap"`
	Data      string `json:"data"`
	Ephemeral bool   `json:"ephemeral"`
	Clock     string `json:"clock"` // "real", "virtual"
	Nodes     []Node `json:"nodes"`
}

// Describe gives the cluster as it is now.
func (c *Cluster) Describe() Description {
	if c.t != nil {
		c.t.Helper()
	}
	d, err := c.describe()
	c.fail(err)
	return d
}

func (c *Cluster) describe() (d Description, err error) {
	err = c.call("GET", "/cluster", nil, &d)
	return d, err
}

// pid is the process of a node, 0: none.
func (d *Description) pid(node int) int {
	for _, n := range d.Nodes {
		if n.ID == node {
			return n.PID
		}
	}
	return 0
}

// brokers is how many of the nodes are brokers, running or not.
func (d *Description) brokers() int {
	count := 0
	for _, n := range d.Nodes {
		if slices.Contains(n.Roles, "broker") {
			count++
		}
	}
	return count
}

// Status gives what a node says of itself: its state, roles, epochs and counts.
func (c *Cluster) Status(node int) map[string]any {
	if c.t != nil {
		c.t.Helper()
	}
	var all struct {
		Nodes []struct {
			ID     int
			Status map[string]any
		}
	}
	c.fail(c.call("GET", "/status"+query([]int{node}, 0), nil, &all))
	for _, n := range all.Nodes {
		if n.ID == node {
			return n.Status
		}
	}
	return nil
}

func (c *Cluster) do(what string, ids []int) {
	if c.t != nil {
		c.t.Helper()
	}
	var now Description
	c.fail(c.call("POST", "/nodes", map[string]any{"do": what, "ids": ids}, &now))
	c.mu.Lock()
	c.info = now
	c.mu.Unlock()
}

// StopNodes stops nodes in order (SIGTERM), and returns when they are gone. Several: at the same moment.
func (c *Cluster) StopNodes(ids ...int) { c.do("stop", ids) }

// Kill kills nodes (SIGKILL).
func (c *Cluster) Kill(ids ...int) { c.do("kill", ids) }

// Pause has nodes stand still (SIGSTOP): their connections stay, and nothing is answered.
func (c *Cluster) Pause(ids ...int) { c.do("pause", ids) }

// Resume has paused nodes go on.
func (c *Cluster) Resume(ids ...int) { c.do("resume", ids) }

// StartNodes starts nodes that are down, and returns when they serve.
func (c *Cluster) StartNodes(ids ...int) { c.do("start", ids) }

// Wipe deletes the data of nodes that are down.
func (c *Cluster) Wipe(ids ...int) { c.do("wipe", ids) }

// AddNodes adds brokers, with numbers that are not there yet.
func (c *Cluster) AddNodes(ids ...int) { c.do("add", ids) }
