package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// TestEvent: an event is encoded once in each encoding, and connect gets a copy that it may write
// to.
func TestEvent(t *testing.T) {
	e, err := NewEvent(model.EventWindow, "7-1", &model.WindowEvent{Revision: "7-1", Values: []model.Cell{{Src: "rack1", Dst: "rack2", Heavy: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []codec{{"proto", false}, {"json", true}} {
		kept, err := e.encoded(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b, err := c.MarshalAppend([]byte("before"), e)
			if rest, ok := bytes.CutPrefix(b, []byte("before")); err != nil || !ok || !bytes.Equal(rest, kept) {
				t.Errorf("%s: %q, %v, want %q after what was there", c.name, b, err, kept)
			}
			clear(b)
		}
		if again, _ := e.encoded(c); &again[0] != &kept[0] {
			t.Errorf("%s: the event is encoded again", c.name)
		}
		read := proto.Unmarshal
		if c.json {
			read = protojson.Unmarshal
		}
		var got wire.WatchResponse
		if err := read(kept, &got); err != nil || !proto.Equal(&got, e.message) || got.GetWindow().GetCells()[0].GetHeavy() != 3 {
			t.Errorf("%s: %v, %v", c.name, &got, err)
		}
	}
	if _, err := NewEvent("other", "", &model.Health{}); err == nil {
		t.Error("what is no event is made one")
	}
	if _, err := (codec{}).Marshal(1); err == nil {
		t.Error("what is no message is encoded")
	}
}
