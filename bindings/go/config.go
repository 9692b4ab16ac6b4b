package kclient

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Config holds properties by name: Kafka's, librdkafka's and the old producers' names all work (`kc config explain` lists them). Values are
// strings, booleans, numbers, or a time.Duration for what ends in .ms.
type Config map[string]any

func (c Config) text(name string) (string, error) {
	switch v := c[name].(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Duration:
		if !strings.HasSuffix(name, ".ms") {
			return "", newError(ErrConfig, NotPersisted, "%s: a time.Duration is for properties that end in .ms", name)
		}
		return decimal(float64(v)/float64(time.Millisecond), 64), nil
	case float32:
		return decimal(float64(v), 32), nil
	case float64:
		return decimal(v, 64), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v), nil
	default:
		return "", newError(ErrConfig, NotPersisted, "%s: a %T is no value of a property: give a string, boolean, number or time.Duration", name, v)
	}
}

// decimal is a number without an exponent: whole ones, as JSON's numbers come, are integers.
func decimal(v float64, bits int) string { return strconv.FormatFloat(v, 'f', -1, bits) }

// build makes the C configuration; the caller frees it.
func (c Config) build() (*C.kc_config, error) {
	k := C.kc_config_new()
	if k == nil {
		return nil, codeError(C.KC_NO_MEMORY, "making a configuration")
	}
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text, err := c.text(name)
		if err == nil {
			err = configSet(k, name, text)
		}
		if err != nil {
			C.kc_config_free(k)
			return nil, err
		}
	}
	return k, nil
}

func configSet(k *C.kc_config, name, value string) error {
	cname, cvalue := C.CString(name), C.CString(value)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(unsafe.Pointer(cvalue))
	var e *C.kc_error
	code := C.kc_config_set(k, cname, cvalue, &e)
	return takeError(code, e, "setting "+name)
}

func configGet(k *C.kc_config, name string) string {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return C.GoString(C.kc_config_get(k, cname))
}

// timing is what of the configuration the Go side of a producer has to know.
type timing struct {
	linger   time.Duration // how long it gathers before it crosses into C: linger.ms, but not longer than lingerMost
	delivery time.Duration // delivery.timeout.ms
}

const lingerMost = time.Millisecond

func timingOf(k *C.kc_config) timing {
	return timing{min(milliseconds(k, "linger.ms"), lingerMost), milliseconds(k, "delivery.timeout.ms")}
}

func milliseconds(k *C.kc_config, name string) time.Duration {
	ms, _ := strconv.ParseFloat(configGet(k, name), 64)
	return time.Duration(ms * float64(time.Millisecond))
}

// over is the timing of a role whose configuration is k, on a client with this one: what differs from the defaults is the role's.
func (t timing) over(k *C.kc_config) timing {
	none := C.kc_config_new()
	defer C.kc_config_free(none)
	defaults, own := timingOf(none), timingOf(k)
	if own.linger != defaults.linger {
		t.linger = own.linger
	}
	if own.delivery != defaults.delivery {
		t.delivery = own.delivery
	}
	return t
}

// Property describes one property.
type Property struct {
	Name, Aliases, Scope, Type, Range, Default, Text string
}

// Properties lists all that a [Config] may hold.
func Properties() []Property {
	var all []Property
	for i := C.size_t(0); ; i++ {
		var e C.kc_config_entry
		if C.kc_config_describe(i, &e) != C.KC_OK {
			return all
		}
		all = append(all, Property{C.GoString(e.name), C.GoString(e.aliases), C.GoString(e.scope), C.GoString(e._type), C.GoString(e._range),
			C.GoString(e.def), C.GoString(e.text)})
	}
}

// Version is that of the library, for example "0.1.0".
func Version() string { return C.GoString(C.kc_version()) }
