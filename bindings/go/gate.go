package kclient

import (
	"sync"
	"sync/atomic"
)

// gate guards a C handle: calls pass through it, and the handle is freed once it is shut and the last call has left. So a call that comes
// after, or during, a Close finds a closed gate instead of freed memory.
type gate struct {
	state atomic.Int64 // calls inside, and gateShut
	once  sync.Once
	free  func()
}

const gateShut = int64(1) << 62

// enter: false when it is shut; else leave must follow.
func (g *gate) enter() bool {
	if g.state.Add(1)&gateShut == 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.state.Add(-1) == gateShut {
		g.once.Do(g.free)
	}
}

// shut has free called, now or by the last call inside. Calling it again changes nothing.
func (g *gate) shut() {
	if g.state.Add(1)&gateShut == 0 {
		g.state.Or(gateShut)
	}
	g.leave()
}
