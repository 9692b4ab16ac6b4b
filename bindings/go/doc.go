// Package kclient is the Go binding of libkclient, a client of the Apache Kafka protocol: a [Client] with producers ([Producer]), consumers ([Consumer]) and
// administration ([Admin]).
//
// Three things hold for all of it. Waiting is done in Go: one goroutine a client watches the library's descriptor in the runtime's poller, and wakes whoever
// waits for what came; no call into C blocks, so no waiting goroutine holds a thread, and each ends with its context. Records cross into C in runs, not one
// by one. And every handle may be used, and closed, from any goroutine at any time: what comes too late gets [ErrClosed].
//
// Tests of applications: package kctest beside this one.
package kclient
