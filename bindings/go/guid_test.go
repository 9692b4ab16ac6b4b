package kclient_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	kclient "github.com/libkclient/libkclient/bindings/go"
	"github.com/libkclient/libkclient/bindings/go/kctest"
)

func TestGUIDText(t *testing.T) {
	const text = "01890a5d-ac96-774b-bcce-b302099a8057"
	g := must(kclient.ParseGUID(text))(t)
	for _, same := range []string{strings.ToUpper(text), strings.ReplaceAll(text, "-", "")} {
		if kclient.MustParseGUID(same) != g {
			t.Errorf("%s is another", same)
		}
	}
	if g.String() != text || g.IsZero() || !(kclient.GUID{}).IsZero() {
		t.Errorf("%s", g)
	}
	for _, bad := range []string{"", "x", text[1:], text + "0", "01890a5d-ac96-774b-bcce-b302099a805g", "nul\x00nul"} {
		if _, err := kclient.ParseGUID(bad); !errors.Is(err, kclient.ErrBadGUID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var back struct{ ID kclient.GUID }
	check(t, json.Unmarshal([]byte(`{"ID":"`+text+`"}`), &back))
	if back.ID != g || string(must(json.Marshal(back))(t)) != `{"ID":"`+text+`"}` {
		t.Errorf("%v", back)
	}
	one, two := must(kclient.NewGUID())(t), must(kclient.NewGUID())(t)
	if one == two || one[6]>>4 != 7 {
		t.Errorf("%s, %s", one, two)
	}
}

func TestGUIDDedup(t *testing.T) {
	t.Parallel()
	c := kctest.Start(t)
	c.CreateTopic("payments", 3, 1, map[string]string{"message.guid.dedup": "true"})
	p := newProducer(t, c, nil)
	a, ctx := c.Admin(), within(t)
	id := must(p.NewGUID())(t)
	first := must(p.Send(ctx, kclient.Record{Topic: "payments", Value: []byte("ann pays 10"), GUID: id}))(t)
	again := must(newProducer(t, c, nil).Send(ctx, kclient.Record{Topic: "payments", Value: []byte("ann pays 10"), GUID: id}))(t)
	if first.Duplicate() || !again.Duplicate() || again.Offset != first.Offset || again.Partition != first.Partition ||
		again.Flags&kclient.OtherPayload != 0 {
		t.Errorf("%+v, then %+v", first, again)
	}
	other := must(p.Send(ctx, kclient.Record{Topic: "payments", Value: []byte("ann pays 20"), GUID: id}))(t)
	if other.Flags&kclient.OtherPayload == 0 || !strings.Contains(other.Flags.String(), "other payload") {
		t.Errorf("%+v", other)
	}
	unknown := must(kclient.NewGUID())(t)
	places := must(a.LookupGUIDs(ctx, "payments", []kclient.GUID{id, unknown}))(t)
	if len(places) != 2 || places[0].State != kclient.GUIDFound || places[0].Offset != first.Offset || places[0].Partition != first.Partition ||
		places[0].GUID != id ||
		places[1].State != kclient.GUIDUnknown || places[1].GUID != unknown {
		t.Errorf("%+v", places)
	}
	var entries int64
	for _, s := range must(a.GUIDStats(ctx, "payments"))(t) {
		entries += s.Entries
	}
	if entries != 1 {
		t.Errorf("%d ids", entries)
	}
	// Consumed, and sent on with its id.
	k := newConsumer(t, c, nil)
	check(t, k.Assign(kclient.TopicPartition{Topic: "payments", Partition: first.Partition, Offset: kclient.OffsetBeginning}))
	r := read(t, k, 1)[0]
	if r.GUID != id {
		t.Errorf("%s was consumed", r.GUID)
	}
	if back := must(p.Send(ctx, r))(t); !back.Duplicate() {
		t.Errorf("%+v", back)
	}
	if _, err := p.Send(ctx, kclient.Record{Topic: "payments", GUID: unknown, Headers: []kclient.Header{{Name: "guid", Value: id[:]}}}); !errors.Is(err,
		kclient.ErrBadGUID) {
		t.Errorf("two ids: %v", err)
	}
}
