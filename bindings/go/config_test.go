package kclient

import (
	"encoding/json"
	"testing"
	"time"
)

func TestValuesOfAConfig(t *testing.T) {
	var read map[string]any
	if err := json.Unmarshal([]byte(`{"a": 104857600, "b": 0.25, "c": true}`), &read); err != nil {
		t.Fatal(err)
	}
	c := Config(read)
	for name, value := range map[string]any{"linger.ms": 500 * time.Microsecond, "session.timeout.ms": 45 * time.Second, "n": uint8(7), "f": float32(0.5)} {
		c[name] = value
	}
	for name, want := range map[string]string{"a": "104857600", "b": "0.25", "c": "true", "linger.ms": "0.5", "session.timeout.ms": "45000", "n": "7",
		"f": "0.5"} {
		if text, err := c.text(name); err != nil || text != want {
			t.Errorf("%s: %v became %q, %v", name, c[name], text, err)
		}
	}
	k, err := Config{"linger.ms": 500 * time.Microsecond, "fetch.max.bytes": 104857600.0}.build()
	if err != nil {
		t.Fatal(err)
	}
	if got := timingOf(k).linger; got != 500*time.Microsecond {
		t.Errorf("%v", got)
	}
	if _, err := (Config{"session.timeout.ms": 1500 * time.Microsecond}).build(); err == nil {
		t.Error("half a millisecond was lost")
	}
}
