package hop

import (
	"cmp"
	"slices"

	"github.com/csigscope/csigscope/aggregate/clock"
	"github.com/csigscope/csigscope/decode/csig"
)

// Mark is data on its way with the newest tag of its flow, or a reflection of that tag with
// the acknowledgement of the data, as a tap saw it.
type Mark struct {
	Segment uint64 // the data: the same number at every tap, and in its acknowledgement
	Tag     csig.Tag
	TimeNS  int64  // by the tap's clock, Unix ns
	Size    uint32 // of the frame, bytes
}

// reflected are the tags that one tap saw and whose reflections the other saw: where data
// was, before its receiver had it and acknowledged it, and where the acknowledgement was
// afterwards. Data that was seen twice may have been acknowledged between; of equal
// acknowledgements the first one counts. It sorts the marks. The first of each two is the tag.
func reflected(tags, reflections []Mark) (list [][2]*Mark) {
	slices.SortFunc(tags, compareMarks)
	slices.SortFunc(reflections, compareMarks)
	for i, k := 0, 0; i < len(tags) && k < len(reflections); {
		t := &tags[i]
		twice := i > 0 && tags[i-1].Segment == t.Segment || i+1 < len(tags) && tags[i+1].Segment == t.Segment
		switch r := &reflections[k]; {
		case twice || t.Segment < r.Segment:
			i++
		case t.Segment > r.Segment || t.Tag != r.Tag:
			k++ // another tag's, of several that the acknowledgement covers
		default:
			list = append(list, [2]*Mark{t, r})
			i, k = i+1, k+1
		}
	}
	return list
}

func compareMarks(a, b Mark) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.TimeNS, b.TimeNS))
}

// echoes are the tags that A saw first, and those that B did.
func echoes(a, b *Tap) (forward, backward []clock.Pair) {
	for _, p := range reflected(a.Tags, b.Reflections) {
		forward = append(forward, clock.Pair{A: p[0].TimeNS, B: p[1].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	for _, p := range reflected(b.Tags, a.Reflections) {
		backward = append(backward, clock.Pair{A: p[1].TimeNS, B: p[0].TimeNS, Kind: kind(p[0].Size+p[1].Size, 0, true)})
	}
	return forward, backward
}
