package kclient

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// cmem is C memory for the inputs of one call: Go's own must not be pointed at from within them.
type cmem struct{ blocks []unsafe.Pointer }

func (m *cmem) bytes(size int) unsafe.Pointer {
	p := C.calloc(1, C.size_t(max(size, 1)))
	m.blocks = append(m.blocks, p)
	return p
}

func (m *cmem) free() {
	for _, b := range m.blocks {
		C.free(b)
	}
	m.blocks = nil
}

func (m *cmem) string(s string) *C.char {
	p := C.CString(s)
	m.blocks = append(m.blocks, unsafe.Pointer(p))
	return p
}

// text is nil for an empty string.
func (m *cmem) text(s string) *C.char {
	if s == "" {
		return nil
	}
	return m.string(s)
}

func (m *cmem) strings(all []string) **C.char {
	list := alloc[*C.char](m, len(all))
	for i, s := range all {
		list[i] = m.string(s)
	}
	return first(list)
}

func (m *cmem) numbers(all []int32) *C.int32_t {
	list := alloc[C.int32_t](m, len(all))
	for i, n := range all {
		list[i] = C.int32_t(n)
	}
	return first(list)
}

// alloc gives n zeroed items.
func alloc[T any](m *cmem, n int) []T {
	var one T
	return unsafe.Slice((*T)(m.bytes(n*int(unsafe.Sizeof(one)))), n)
}

// first is the address of the first item, nil without one.
func first[T any](list []T) *T {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}
