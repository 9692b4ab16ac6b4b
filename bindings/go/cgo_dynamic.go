//go:build kclient_dynamic

package kclient

/*
#cgo pkg-config: kclient
*/
import "C"
