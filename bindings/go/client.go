package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Client owns connections, metadata, memory budget and the I/O thread (one, of C, whatever the number of brokers). Producers, consumers and
// admins attach to it. All methods may be called from any goroutine. A waiting goroutine waits in Go, not in C: it costs no thread.
type Client struct{ c *client }

// ClientOption is an option of [NewClient].
type ClientOption func(*client)

// WithLogger has the client's log lines go to l. Without it they are dropped.
func WithLogger(l *slog.Logger) ClientOption { return func(c *client) { c.logger = l } }

// client is what goroutines and roles hold; Client is the application's handle of it, whose collection closes it.
type client struct {
	gate
	h       *C.kc_client
	file    *os.File // a duplicate of kc_client_fd, which the runtime's poller watches
	watched chan struct{}
	ended   chan struct{} // closed when the client is
	end     sync.Once
	logger  *slog.Logger
	timing  timing                     // of producers, unless their own configuration says otherwise
	known   atomic.Pointer[[]string]   // names of topics by their numbers, which never change
	last    atomic.Pointer[knownTopic] // asked for last
	grouped bool                       // it has a group.id

	mu      sync.Mutex
	roles   map[unsafe.Pointer]role
	closing bool // no more roles
	ops     map[uint64]chan struct{}
	lastOp  uint64
	topics  map[string]C.int32_t
}

// role is a producer or a consumer.
type role interface {
	ready(kind C.int32_t)
	close(ctx context.Context) error
	abandon()
}

// NewClient makes a client. It does not wait for a connection: what is wrong with the brokers, calls say. Close it in the end.
func NewClient(config Config, options ...ClientOption) (*Client, error) {
	k, err := config.build()
	if err != nil {
		return nil, err
	}
	defer C.kc_config_free(k)
	if configGet(k, "client.thread") == "none" {
		return nil, newError(ErrConfig, NotPersisted, "client.thread=none: a Go client needs the library's I/O thread; leave it out")
	}
	c := &client{watched: make(chan struct{}), ended: make(chan struct{}), roles: map[unsafe.Pointer]role{}, ops: map[uint64]chan struct{}{},
		topics: map[string]C.int32_t{}}
	for _, o := range options {
		o(c)
	}
	var e *C.kc_error
	if code := C.kc_client_new(k, &c.h, &e); code != C.KC_OK {
		return nil, takeError(code, e, "making a client")
	}
	c.gate.free = func() { C.kc_client_free(c.h) }
	c.timing = timingOf(k)
	c.grouped = configGet(k, "group.id") != ""
	if err := c.watch(); err != nil {
		C.kc_client_free(c.h)
		return nil, err
	}
	outer := &Client{c}
	runtime.SetFinalizer(outer, func(o *Client) { go o.c.abandon() })
	return outer, nil
}

// watch starts the goroutine that waits, in the runtime's poller, for kc_client_fd.
func (c *client) watch() error {
	syscall.ForkLock.RLock() // a program that is started meanwhile must not have it
	fd, err := syscall.Dup(int(C.kc_client_fd(c.h)))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return &Error{Code: ErrTransport, Message: "no descriptor could be had: " + err.Error(), cause: err}
	}
	c.file = os.NewFile(uintptr(fd), "kc_client_fd")
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		return &Error{Code: ErrTransport, Message: "the descriptor cannot be watched: " + err.Error(), cause: err}
	}
	const max = 64
	list := (*[max]C.kc_ready)(C.calloc(max, C.sizeof_kc_ready))
	go func() {
		defer close(c.watched)
		defer C.free(unsafe.Pointer(list))
		_ = raw.Read(func(uintptr) bool { // until the file is closed
			for n := max; n == max; {
				n = int(C.kc_client_ready(c.h, &list[0], C.sizeof_kc_ready, max))
				for i := range list[:n] {
					c.dispatch(&list[i])
				}
			}
			return false
		})
	}()
	return nil
}

func (c *client) dispatch(r *C.kc_ready) {
	switch r.kind {
	case C.KC_READY_LOG:
		c.log()
	case C.KC_READY_OP:
		c.mu.Lock()
		done := c.ops[uint64(r.opaque)]
		delete(c.ops, uint64(r.opaque))
		c.mu.Unlock()
		if done != nil {
			close(done)
		}
	default:
		c.mu.Lock()
		role := c.roles[r.role]
		c.mu.Unlock()
		if role != nil {
			role.ready(r.kind)
		}
	}
}

func (c *client) log() {
	const size = 1024
	text := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(text))
	for {
		var at C.int64_t
		level := C.kcgo_log(c.h, &at, text, size)
		if level == 0 {
			return
		}
		if c.logger == nil {
			continue
		}
		l := slog.LevelDebug
		switch {
		case level <= 3:
			l = slog.LevelError
		case level == 4:
			l = slog.LevelWarn
		case level <= 6:
			l = slog.LevelInfo
		}
		ctx := context.Background()
		if h := c.logger.Handler(); h.Enabled(ctx, l) {
			_ = h.Handle(ctx, slog.NewRecord(time.UnixMilli(int64(at)), l, C.GoString(text), 0))
		}
	}
}

// add: false: the client is being closed, nobody would close the role.
func (c *client) add(h unsafe.Pointer, r role) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.roles[h] = r
	}
	return !c.closing
}

func (c *client) remove(h unsafe.Pointer) {
	c.mu.Lock()
	delete(c.roles, h)
	c.mu.Unlock()
}

// topic gives the number of a topic's name.
func (c *client) topic(name string) (C.int32_t, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.topics[name]; ok {
		return n, nil
	}
	if !c.enter() {
		return 0, errClosed("the client")
	}
	defer c.leave()
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	n := C.kc_client_topic(c.h, cname)
	if n == 0 || len(name) != int(C.strlen(cname)) {
		return 0, newError(ErrInvalid, NotPersisted, "%q is no name of a topic: 1 to 249 of letters, digits, '.', '_' and '-'", name)
	}
	name = strings.Clone(name)
	c.topics[name] = n
	old := c.known.Load()
	var names []string
	if old != nil {
		names = append(names, *old...)
	}
	for len(names) <= int(n) {
		names = append(names, "")
	}
	names[n] = name
	c.known.Store(&names)
	return n, nil
}

type knownTopic struct {
	name   string
	number C.int32_t
}

// topicCached is topic for whoever asks for the same one again and again.
func (c *client) topicCached(name string) (C.int32_t, error) {
	if last := c.last.Load(); last != nil && last.name == name {
		return last.number, nil
	}
	n, err := c.topic(name)
	if err == nil {
		c.last.Store(&knownTopic{strings.Clone(name), n})
	}
	return n, err
}

// topicName is the name of a number that the library gave.
func (c *client) topicName(n C.int32_t) string {
	if known := c.known.Load(); known != nil && int(n) < len(*known) && (*known)[n] != "" {
		return (*known)[n]
	}
	if n <= 0 || !c.enter() {
		return ""
	}
	p := C.kc_client_topic_name(c.h, n)
	name := C.GoString(p)
	c.leave()
	if name != "" {
		_, _ = c.topic(name)
	}
	return name
}

func errClosed(what string) error { return newError(ErrClosed, NotPersisted, "%s is closed", what) }

// Close closes the client's producers and consumers, as their Close does, and then itself. When ctx ends first, what is left is given up.
// Calls from then on give [ErrClosed]. Not to be called in a function that reports call, which it waits for.
func (c *Client) Close(ctx context.Context) error {
	runtime.SetFinalizer(c, nil)
	return c.c.close(ctx)
}

func (c *client) close(ctx context.Context) error {
	var first error
	c.end.Do(func() {
		for _, r := range c.takeRoles() {
			if err := r.close(ctx); err != nil && first == nil {
				first = err
			}
		}
		c.stop()
	})
	return first
}

// awaitClose waits for a Close of a role's that somebody else has begun.
func (c *client) awaitClose(ctx context.Context, ended <-chan struct{}, what string) error {
	select {
	case <-ended: // also when ctx has ended
		return nil
	default:
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctxError(ctx, MaybePersisted, what)
	}
}

// takeRoles gives all that are to be closed; there will be no others.
func (c *client) takeRoles() []role {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	all := make([]role, 0, len(c.roles))
	for _, r := range c.roles {
		all = append(all, r)
	}
	return all
}

// abandon is for a client that was dropped without a Close.
func (c *client) abandon() {
	c.end.Do(func() {
		for _, r := range c.takeRoles() {
			r.abandon()
		}
		c.stop()
	})
}

func (c *client) stop() {
	if c.enter() {
		C.kc_client_close(c.h, 0, nil)
		c.leave()
	}
	c.file.Close()
	<-c.watched
	close(c.ended)
	c.shut()
}

// timeoutOf is what a context leaves, in microseconds: KC_FOREVER without a deadline.
func timeoutOf(ctx context.Context) C.int64_t {
	at, ok := ctx.Deadline()
	if !ok {
		return C.KC_FOREVER
	}
	left := time.Until(at)
	if left <= 0 {
		return 1
	}
	return C.int64_t(min(int64((left+time.Microsecond-1)/time.Microsecond), math.MaxInt64/2))
}

// callTimeout is the same for administrative calls, where 0 is default.api.timeout.ms.
func callTimeout(ctx context.Context) C.int64_t {
	if t := timeoutOf(ctx); t != C.KC_FOREVER {
		return t
	}
	return 0
}

// run starts an operation, waits for it, and gives it to take (may be nil) for its results, which also sees the operation's own error.
// When ctx ends first, the operation is cancelled.
func (c *client) run(ctx context.Context, what string, start func(opaque C.uint64_t, op **C.kc_op, e **C.kc_error) C.kc_err,
	take func(op *C.kc_op)) error {
	if ctx.Err() != nil {
		return ctxError(ctx, NotPersisted, what)
	}
	if !c.enter() {
		return errClosed("the client")
	}
	defer c.leave()
	done := make(chan struct{})
	c.mu.Lock()
	c.lastOp++
	id := c.lastOp
	c.ops[id] = done
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.ops, id)
		c.mu.Unlock()
	}()
	var op *C.kc_op
	var e *C.kc_error
	if code := start(C.uint64_t(id), &op, &e); code != C.KC_OK {
		return takeError(code, e, what)
	}
	defer C.kc_op_free(op)
	select {
	case <-done:
	case <-ctx.Done():
		C.kc_op_cancel(op)
		if C.kc_op_done(op) == 0 {
			return ctxError(ctx, MaybePersisted, what)
		}
	case <-c.ended:
		return errClosed("the client")
	}
	code := C.kc_op_wait(op, 0, &e)
	if code == C.KC_CANCELLED && ctx.Err() != nil {
		C.kc_error_free(e)
		return ctxError(ctx, MaybePersisted, what)
	}
	if take != nil {
		take(op)
	}
	return takeError(code, e, what)
}
