package decode_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestNewNeedsADomain(t *testing.T) {
	t.Parallel()
	if _, err := decode.New(decode.Config{}); err == nil {
		t.Error("New without a domain succeeds")
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	var r decode.Result
	for _, name := range []string{"two_tags_and_reflection", "two_tags", "untagged_udp", "macsec_encrypted", "reflection_empty", "reflections_excess"} {
		d.Decode(goldenFrame(t, name), &r)
	}
	d.Decode(nil, &r)
	want := decode.Counters{Frames: 7, Tags: 7, Orphans: 4, Reflections: 3, EmptyReflections: 1, ExcessReflections: 1}
	want.Reasons[decode.OK] = 3
	want.Reasons[decode.NoCSIG] = 2
	want.Reasons[decode.Hidden] = 1
	want.Reasons[decode.CutEthernet] = 1
	got := d.Counters()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sum := got
	sum.Add(&got)
	if sum.Frames != 14 || sum.Reasons[decode.OK] != 6 || sum.Tags != 14 || sum.Orphans != 8 ||
		sum.Reflections != 6 || sum.EmptyReflections != 2 || sum.ExcessReflections != 2 {
		t.Errorf("twice %+v is %+v", got, sum)
	}
}

// What a frame says does not depend on the one before it, in a Result that is used
// again: only the caller's own members stay.
func TestResultIsReused(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	d := decoder(t, dom)
	var used decode.Result
	for _, g := range goldens(t) {
		var fresh decode.Result
		d.Decode(g.frame, &fresh)
		d.Decode(goldenFrame(t, "two_tags_and_reflection"), &used)
		d.Decode(g.frame, &used)
		if used.N != fresh.N || used.Reason != fresh.Reason ||
			!cmp.Equal(used.Obs[:used.N], fresh.Obs[:fresh.N]) ||
			!cmp.Equal(append([]decode.Layer{}, used.Encap.Layers()...), append([]decode.Layer{}, fresh.Encap.Layers()...)) {
			t.Errorf("%s: %+v after another frame, %+v alone", g.name, used, fresh)
		}
	}
}

func TestReasonNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := range decode.Reason(decode.NumReasons) {
		if seen[r.String()] || r.String() == "" || r.String() == "unknown" {
			t.Errorf("reason %d is named %q", r, r)
		}
		seen[r.String()] = true
	}
	if decode.Reason(200).String() != "unknown" {
		t.Error("a reason out of range has a name")
	}
}

func TestKindNames(t *testing.T) {
	t.Parallel()
	if decode.Tag.String() != "tag" || decode.Reflection.String() != "reflection" {
		t.Errorf("%s, %s", decode.Tag, decode.Reflection)
	}
}

// Without a table there is no value, and without a time no time.
func TestJSONLeavesOut(t *testing.T) {
	t.Parallel()
	o := decode.Observation{Packet: 3, Kind: decode.Tag, Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, S: 31}}
	o.Src[0], o.SrcPort, o.Proto = 1, 1, 6 // not set, as the flags say
	const want = `{"packet":3,"kind":"tag","format":"compact","profile":"ietf01","signal":"min_abw","signal_type":0,` +
		`"code":31,"lm":0,"untouched":false,"trimmed":false,"orphan":false,"path":"forward"}`
	if got := string(o.AppendJSON(nil, domain(t, csig.Spec{}), nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
