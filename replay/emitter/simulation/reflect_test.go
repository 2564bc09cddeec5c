package simulation

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// arrivals holds a flow's tags since its last acknowledgement.
type arrivals struct {
	tags []csig.Tag
	ends []uint32 // first byte after each
}

// take removes and returns the tags that an acknowledgement covers.
func (a *arrivals) take(ack uint32) (tags []csig.Tag) {
	n := 0
	for n < len(a.ends) && int32(ack-a.ends[n]) >= 0 {
		n++
	}
	tags, a.tags, a.ends = a.tags[:n], a.tags[n:], a.ends[n:]
	return tags
}

// worse reports whether a is a worse value than b. In wide layouts, codes equal S.
func worse(a, b csig.Tag) bool { return a.Signal().Direction().Tighter(a.S, b.S) }

// From captures alone: an acknowledgement that covers tags reflects one of them, the latest or the
// worst of its signal. Nothing else is reflected, and only the other tags of the same
// acknowledgement are lost.
func TestReflectionsTellWhatTheyCover(t *testing.T) {
	long(t)
	for _, reflect := range []scenario.Reflect{scenario.ReflectLatest, scenario.ReflectWorst} {
		t.Run(string("reflect "+reflect), func(t *testing.T) {
			s := tiny().WithDefaults()
			s.Reflect, s.AckEvery, s.RepeatAckEvery, s.TagEvery = reflect, 7, 0, 1
			s.CaptureUntagged, s.SingleFile, s.BufferBytes = true, true, 64<<20
			r, dir := run(t, s)
			if r.Dropped > 0 {
				t.Fatal("packets are lost")
			}
			flows, count := map[string]*arrivals{}, map[csig.Signal]int{}
			covering := 0
			for _, c := range readCapture(t, filepath.Join(dir, "tiny.pcapng"), s.Layout) {
				payload := uint32(c.wire - len(c.data) + len(c.tcp.Payload))
				if payload > 0 {
					k := fmt.Sprint(c.ip.SrcIP, c.tcp.SrcPort, c.ip.DstIP, c.tcp.DstPort)
					if flows[k] == nil {
						flows[k] = &arrivals{}
					}
					if c.tag != nil {
						flows[k].tags = append(flows[k].tags, *c.tag)
						flows[k].ends = append(flows[k].ends, c.tcp.Seq+payload)
					}
					continue
				}
				k := fmt.Sprint(c.ip.DstIP, c.tcp.DstPort, c.ip.SrcIP, c.tcp.SrcPort)
				tags := flows[k].take(c.tcp.Ack)
				if (c.reflection != nil) != (len(tags) > 0) {
					t.Fatalf("%d tags covered, reflection %v", len(tags), c.reflection)
				}
				if c.reflection == nil {
					continue
				}
				covering++
				count[c.reflection.Signal()]++
				checkReflection(t, reflect, c.reflection, tags)
			}
			if covering < 300 {
				t.Errorf("%d acknowledgements cover tags", covering)
			}
			for _, signal := range s.Signals {
				if share := float64(count[signal]) / float64(covering); share < 0.15 {
					t.Errorf("%s: %.2f of reflections", signal, share)
				}
			}
		})
	}
}

func checkReflection(t *testing.T, reflect scenario.Reflect, got *csig.Tag, tags []csig.Tag) {
	t.Helper()
	if last := tags[len(tags)-1]; reflect == scenario.ReflectLatest {
		if *got != last {
			t.Errorf("reflects %+v, the latest tag is %+v", *got, last)
		}
		return
	}
	var want *csig.Tag
	for i := range tags {
		if tags[i].T == got.T && (want == nil || worse(tags[i], *want)) {
			want = &tags[i]
		}
	}
	if want == nil || *got != *want {
		t.Errorf("reflects %+v, the worst tag is %+v of %d", *got, want, len(tags))
	}
}

// Exactly one packet in N carries a tag, and signals take turns.
func TestTaggingIsExact(t *testing.T) {
	long(t)
	for _, every := range []int{1, 3, 10, -1} {
		s := tiny().WithDefaults()
		s.TagEvery, s.BufferBytes = every, 64<<20
		s.Workloads = s.Workloads[:2]
		s.CaptureUntagged, s.SingleFile = true, true
		_, dir := run(t, s)
		data, tags := map[string]int{}, map[string][]csig.Signal{}
		for _, c := range readCapture(t, filepath.Join(dir, "tiny.pcapng"), s.Layout) {
			if c.wire-len(c.data)+len(c.tcp.Payload) == 0 {
				continue
			}
			k := fmt.Sprint(c.ip.SrcIP, c.tcp.SrcPort, c.ip.DstIP, c.tcp.DstPort)
			data[k]++
			if c.tag != nil {
				tags[k] = append(tags[k], c.tag.Signal())
			}
		}
		for k, n := range data {
			if every < 0 {
				if len(tags[k]) > 0 {
					t.Errorf("%s: an untagged flow has %d tags", k, len(tags[k]))
				}
				continue
			}
			if low := n / every; len(tags[k]) < low || len(tags[k]) > low+1 {
				t.Errorf("%s: %d tags in %d packets, one in %d", k, len(tags[k]), n, every)
			}
			alternates(t, k, tags[k], len(s.Signals))
		}
	}
}

// alternates checks that each signal has its share of any sequence of tags, up to a few.
func alternates(t *testing.T, flow string, tags []csig.Signal, signals int) {
	t.Helper()
	count := map[csig.Signal]int{}
	for _, signal := range tags {
		count[signal]++
	}
	for signal, n := range count {
		if d := n - len(tags)/signals; d < -signals || d > signals {
			t.Errorf("%s: %d of %d tags carry %s", flow, n, len(tags), signal)
		}
	}
	if len(tags) > 2*signals && len(count) != signals {
		t.Errorf("%s: %d of %d signals in %d tags", flow, len(count), signals, len(tags))
	}
}
