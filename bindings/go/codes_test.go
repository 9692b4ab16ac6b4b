package kclient

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The names of codes.go are those of the library.
func TestCodes(t *testing.T) {
	text, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\tErr(\w+)\s+Code = (-?\d+)$`).FindAllStringSubmatch(string(text), -1)
	if len(found) < 120 {
		t.Fatalf("%d codes", len(found))
	}
	for _, f := range found {
		n, _ := strconv.Atoi(f[2])
		name := strings.ReplaceAll(strings.TrimPrefix(Code(n).Name(), "KC_"), "_", "")
		if !strings.EqualFold(name, f[1]) {
			t.Errorf("%d is Err%s here and %s there", n, f[1], Code(n).Name())
		}
		if Code(n).Error() == "" {
			t.Errorf("%s has no text", f[1])
		}
	}
	if !ErrNotLeaderOrFollower.Retriable() || ErrConfig.Retriable() {
		t.Error("what may be tried again")
	}
}
