package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Error says what a code means, in one sentence.
func (c Code) Error() string { return C.GoString(C.kc_err_text(C.kc_err(c))) }

// Name is the code's name: "NOT_LEADER_OR_FOLLOWER", "KC_QUEUE_FULL".
func (c Code) Name() string { return C.GoString(C.kc_err_name(C.kc_err(c))) }

// Retriable tells whether the same call may succeed later without a change.
func (c Code) Retriable() bool { return C.kc_err_retriable(C.kc_err(c)) != 0 }

// Outcome is what became of a record or request.
type Outcome int32

const (
	NotPersisted   Outcome = 0 // certainly not in the log
	MaybePersisted Outcome = 1 // it was sent and no answer came
	Persisted      Outcome = 2 // in the log, as acks asked
)

func (o Outcome) String() string {
	switch o {
	case NotPersisted:
		return "not persisted"
	case MaybePersisted:
		return "maybe persisted"
	case Persisted:
		return "persisted"
	}
	return fmt.Sprintf("outcome %d", int32(o))
}

// Action is what the application can do about an error.
type Action int32

const (
	ActionNone Action = iota
	ActionRetry
	ActionAbortTxn
	ActionRecreate  // make the client or role anew
	ActionFixConfig // the message says what
)

// Attempt is one of the tries that led to an error, or to a retry.
type Attempt struct {
	At     time.Time
	Broker int32  // node id; -1: a bootstrap address, or none
	Phase  string // "resolve", "connect", "negotiate", "send", "await answer", "answer", "queue"
	Cause  Code
	Detail string // address, error text of the system
}

// Error is every error of this package. errors.Is compares it by its code ([ErrQueueFull] and so on) and, where a context ended the wait,
// with context.Canceled and context.DeadlineExceeded; errors.As gives it with its history.
type Error struct {
	Code     Code
	Message  string // what failed, where, why, and what to do
	Outcome  Outcome
	Action   Action
	Fatal    bool // the client or role cannot go on and must be made anew
	Attempts []Attempt

	retriable bool
	cause     error
}

// Name is that of the code: "NOT_LEADER_OR_FOLLOWER", "KC_QUEUE_FULL".
func (e *Error) Name() string { return e.Code.Name() }

// Retriable tells whether the same call may succeed later without a change.
func (e *Error) Retriable() bool { return e.retriable }

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", e.Message, e.Code.Name())
	if n := len(e.Attempts); n > 0 {
		a := e.Attempts[n-1]
		fmt.Fprintf(&b, "; the last of %d attempts: %s", n, a.Phase)
		if a.Broker >= 0 {
			fmt.Fprintf(&b, " at broker %d", a.Broker)
		}
		fmt.Fprintf(&b, ": %s", a.Cause.Name())
		if a.Detail != "" {
			fmt.Fprintf(&b, ", %s", a.Detail)
		}
	}
	return b.String()
}

// Is compares by the code.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Code:
		return e.Code == t
	case *Error:
		return e.Code == t.Code && t.Message == "" && t.cause == nil
	}
	return false
}

// Unwrap gives the context's error, where a context ended the wait.
func (e *Error) Unwrap() error { return e.cause }

func newError(code Code, outcome Outcome, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Outcome: outcome, retriable: code.Retriable()}
}

// codeError is nil for KC_OK.
func codeError(code C.kc_err, what string) error {
	if code == C.KC_OK {
		return nil
	}
	return newError(Code(code), NotPersisted, "%s: %s", what, Code(code).Error())
}

// itemError is the error of one item of a call: nil for KC_OK.
func itemError(code C.kc_err, message *C.char, what string) error {
	if code == C.KC_OK {
		return nil
	}
	if message != nil && *message != 0 {
		return newError(Code(code), NotPersisted, "%s: %s", what, C.GoString(message))
	}
	return codeError(code, what)
}

// ctxError: the context ended a wait. Outcome: of what was waited for.
func ctxError(ctx context.Context, outcome Outcome, what string) error {
	cause := ctx.Err()
	code := ErrCancelled
	if errors.Is(cause, context.DeadlineExceeded) {
		code = ErrTimedOut
	}
	if c := context.Cause(ctx); c != nil && c != cause {
		return &Error{Code: code, Outcome: outcome, Message: fmt.Sprintf("%s: %v: %v", what, cause, c), cause: errors.Join(cause, c),
			retriable: code.Retriable()}
	}
	return &Error{Code: code, Outcome: outcome, Message: fmt.Sprintf("%s: %v", what, cause), cause: cause, retriable: code.Retriable()}
}

func attemptOf(a *C.kc_attempt) Attempt {
	return Attempt{At: time.UnixMilli(int64(a.at_ms)), Broker: int32(a.broker), Cause: Code(a.cause), Phase: C.GoString(a.phase), Detail: C.GoString(a.detail)}
}

func borrowedError(e *C.kc_error) *Error {
	out := &Error{
		Code:      Code(C.kc_error_code(e)),
		Message:   C.GoString(C.kc_error_message(e)),
		Outcome:   Outcome(C.kc_error_outcome(e)),
		Action:    Action(C.kc_error_action(e)),
		Fatal:     C.kc_error_fatal(e) != 0,
		retriable: C.kc_error_retriable(e) != 0,
	}
	for i := C.size_t(0); i < C.kc_error_attempt_count(e); i++ {
		var a C.kc_attempt
		if C.kc_error_attempt(e, i, &a) != C.KC_OK {
			break
		}
		out.Attempts = append(out.Attempts, attemptOf(&a))
	}
	return out
}

// takeError turns a result and its kc_error (may be nil), which it frees, into an error: nil for KC_OK.
func takeError(code C.kc_err, e *C.kc_error, what string) error {
	defer C.kc_error_free(e)
	if code == C.KC_OK {
		return nil
	}
	if e == nil {
		return codeError(code, what)
	}
	return borrowedError(e)
}
