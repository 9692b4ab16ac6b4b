package kclient_test

import (
	"os"
	"strings"
	"testing"
)

// Every Go block of the README stands, as it is but for its indentation, in a test that is compiled and run here.
func TestREADME(t *testing.T) {
	flat := func(text string) string {
		var lines []string
		for _, l := range strings.Split(text, "\n") {
			if l = strings.TrimSpace(l); l != "" {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, "\n")
	}
	var code string
	for _, name := range []string{"example_test.go", "kctest/example_test.go"} {
		code += flat(string(must(os.ReadFile(name))(t))) + "\n"
	}
	blocks := strings.Split(string(must(os.ReadFile("README.md"))(t)), "```go\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("the README has %d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		for _, part := range strings.Split(b, "…\n") { // something is left out there
			if !strings.Contains(code, flat(part)) {
				t.Errorf("not in the examples:\n%s", part)
			}
		}
	}
}
