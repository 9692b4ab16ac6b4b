//go:build !kclient_dynamic

package kclient

// The library itself is linked in, what it needs (libuv, codecs) is not. pkg-config finds it: installed, or in a build tree with
// PKG_CONFIG_PATH=build/pkgconfig. With the tag kclient_dynamic the program loads libkclient.so instead.

/*
#cgo pkg-config: --static kclient
#cgo LDFLAGS: -Wl,--as-needed -Wl,-Bstatic -lkclient -Wl,-Bdynamic
*/
import "C"
