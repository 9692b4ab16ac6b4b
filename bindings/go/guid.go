package kclient

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// GUID is a record's id: 16 bytes, mostly a UUIDv7. A topic with message.guid.dedup=true (kbroker) stores an id once within its window.
// The zero GUID is none.
type GUID [16]byte

// NewGUID makes a UUIDv7 (RFC 9562) of the system's clock and random source.
func NewGUID() (GUID, error) {
	var g GUID
	err := C.kc_guid_make((*C.uint8_t)(&g[0]))
	return g, codeError(err, "making a GUID")
}

// ParseGUID reads a UUID's text: 8-4-4-4-12 or 32 hexadecimal digits, any letter case. [ErrBadGUID] when it is none.
func ParseGUID(text string) (GUID, error) {
	var g GUID
	if text == "" {
		return g, newError(ErrBadGUID, NotPersisted, "an empty text is no UUID: 8-4-4-4-12 hexadecimal digits are")
	}
	// The text's bytes are only read during the call.
	err := C.kc_guid_from_text((*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.size_t(len(text)), (*C.uint8_t)(&g[0]))
	if err != C.KC_OK {
		return GUID{}, newError(Code(err), NotPersisted, "%q is no UUID: 8-4-4-4-12 hexadecimal digits are", text)
	}
	return g, nil
}

// MustParseGUID is [ParseGUID] for constants: it panics when the text is no UUID.
func MustParseGUID(text string) GUID {
	g, err := ParseGUID(text)
	if err != nil {
		panic(err)
	}
	return g
}

const hexDigits = "0123456789abcdef"

// String is the UUID's text, 8-4-4-4-12 in lower case.
func (g GUID) String() string {
	var out [36]byte
	at := 0
	for i, b := range g {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out[at] = '-'
			at++
		}
		out[at], out[at+1] = hexDigits[b>>4], hexDigits[b&15]
		at += 2
	}
	return string(out[:])
}

// IsZero tells whether there is none.
func (g GUID) IsZero() bool { return g == GUID{} }

// MarshalText and UnmarshalText are for JSON and the like.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is [ParseGUID].
func (g *GUID) UnmarshalText(text []byte) error {
	parsed, err := ParseGUID(string(text))
	if err == nil {
		*g = parsed
	}
	return err
}
