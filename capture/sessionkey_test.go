package capture

import (
	"net/netip"
	"testing"
)

// TestSessionKeys: keys survive being written, and nothing else is taken for one.
func TestSessionKeys(t *testing.T) {
	for text, want := range map[string]SessionKey{
		"erspan/192.0.2.1/1023":              {MirrorERSPAN, switchV4, 1023},
		"gretap/2001:db8::1/4294967295":      {MirrorGRETAP, netip.MustParseAddr("2001:db8::1"), 1<<32 - 1},
		"vxlan/192.0.2.1/16777215":           {MirrorVXLAN, switchV4, 1<<24 - 1},
		"tzsp/192.0.2.1/0":                   {MirrorTZSP, switchV4, 0},
		"tzsp/192.0.2.1/02:00:00:00:00:01":   {MirrorTZSP, switchV4, 0x020000000001},
		"tzsp/2001:db8::1/ff:ff:ff:ff:ff:ff": {MirrorTZSP, netip.MustParseAddr("2001:db8::1"), 1<<48 - 1},
		"erspan/fe80::1%eth0/0":              {MirrorERSPAN, netip.MustParseAddr("fe80::1%eth0"), 0},
		"gretap/::ffff:192.0.2.1/7":          {MirrorGRETAP, netip.MustParseAddr("::ffff:192.0.2.1"), 7},
	} {
		got, err := ParseSessionKey(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{
		"", "others", "erspan/192.0.2.1", "erspan/192.0.2.1/1024", "vxlan/192.0.2.1/16777216", "gretap/192.0.2.1/-1", "gretap/switch/1",
		"sflow/192.0.2.1/1", "tzsp/192.0.2.1/7", "tzsp/192.0.2.1/02:00:00:00:00:01:02:03", "erspan/192.0.2.1/02:00:00:00:00:01", "erspan/192.0.2.1/1/1",
	} {
		if k, err := ParseSessionKey(text); err == nil {
			t.Errorf("%q is taken for %+v", text, k)
		}
	}
}

// TestSessionRoom: random sessions leave the room that is reserved for known ones, and
// those that are expected have theirs before their frames come.
func TestSessionRoom(t *testing.T) {
	session := func(id byte) []byte {
		p := unhex(t, outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "2000 6558 00000000", mirrored)
		p[41] = id
		return p
	}
	source := &batches{list: [][][]byte{{session(1), session(2), session(3), session(7), session(8), session(1)}}}
	r := NewMirrorReader(source, MirrorConfig{
		Mirrors: everyMirror, MaxSessions: 4, Reserved: 2, Known: func(k SessionKey) bool { return k.ID >= 7 },
	})
	if index, ok := r.Expect("gretap/192.0.2.1/2"); index != 1 || !ok {
		t.Errorf("index %d, %t; want that of the first session", index, ok)
	}
	for _, name := range []string{"gretap/192.0.2.1/2", "nonsense"} {
		if index, ok := r.Expect(name); ok != (index == 1) {
			t.Errorf("%s: index %d, %t", name, index, ok)
		}
	}
	var b Batch
	if err := r.ReadBatch(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range b.N {
		got = append(got, r.Interfaces()[b.Frames[i].Interface].Name)
	}
	want := []string{"gretap/192.0.2.1/1", "gretap/192.0.2.1/2", OtherSessions, "gretap/192.0.2.1/7", "gretap/192.0.2.1/8", "gretap/192.0.2.1/1"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("frame %d is of %s, want %s", i, got[i], want[i])
		}
	}
	if _, ok := r.Expect("gretap/192.0.2.1/9"); ok || r.Counters().Excess != 1 {
		t.Errorf("there is room for a fifth session; %+v", r.Counters())
	}
}
