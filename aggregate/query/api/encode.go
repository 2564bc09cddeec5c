package api

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// unitFields are the fields of wire.Measure.
var unitFields = [...]string{csig.UnitNone: "", csig.BitPerSecond: "bps", csig.Ratio: "ratio", csig.Nanosecond: "ns", csig.Count: "count"}

// appendCell appends the cell as JSON of a wire.Cell. It is written by hand, since it dominates
// the latency of snapshots.
func (n *names) appendCell(b []byte, c *aggregate.CellStats, by *table.CellCoverage) []byte {
	per := c.Signal.Unit().PerStored()
	b = append(b, `{"src":`...)
	b = n.appendGroup(b, c.Src)
	b = append(b, `,"dst":`...)
	b = n.appendGroup(b, c.Dst)
	b = append(b, `,"kind":"`...)
	b = append(b, c.Kind.String()...)
	b = append(b, `","state":"`...)
	b = append(b, c.State.String()...)
	b = append(b, '"')
	if c.Lasted > 0 {
		b = append(b, `,"since":"`...)
		b = time.Unix(0, c.Since).UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, `","sustained_s":`...)
		b = appendNumber(b, seconds(c.Lasted))
	}
	if c.CongestedWindows > 0 {
		b = append(b, `,"congested_ratio":`...)
		b = appendNumber(b, share(c.CongestedWindows, c.JudgedWindows))
	}
	b = append(b, `,"observations":`...)
	b = strconv.AppendUint(b, c.Observations, 10)
	b = append(b, `,"samples":`...)
	b = strconv.AppendUint(b, c.Samples, 10)
	if c.Measured > 0 {
		b = appendMeasure(b, "mean", c.Signal, c.Mean()*per)
		b = appendMeasure(b, "mean_error", c.Signal, c.MeanError())
		b = appendMeasure(b, "min", c.Signal, c.Signal.Unit().FromStored(c.Min))
		b = appendMeasure(b, "max", c.Signal, c.Signal.Unit().FromStored(c.Max))
		b = appendMeasure(b, "trend", c.Signal, c.TrendValue())
	}
	if c.Unjudged > 0 {
		b = append(b, `,"unjudged":`...)
		b = strconv.AppendUint(b, c.Unjudged, 10)
	}
	b = append(b, `,"untouched":`...)
	b = strconv.AppendUint(b, c.Untouched, 10)
	b = append(b, `,"trimmed":`...)
	b = strconv.AppendUint(b, c.Trimmed, 10)
	b = append(b, `,"heavy":`...)
	b = strconv.AppendUint(b, c.Heavy, 10)
	if c.Observations > 0 {
		b = append(b, `,"heavy_ratio":`...)
		b = appendNumber(b, c.HeavyShare())
	}
	if c.ModeCount > 0 {
		b = append(b, `,"mode":`...)
		b = n.appendBottleneck(b, c.Mode, c.ModeCount, c.Heavy, c.ModeEvidence)
		b = appendMeasure(b, "mean", c.Signal, c.ModeMean()*per)
		b = append(b, '}')
	}
	if c.RunnerUpCount > 0 {
		b = append(b, `,"runner_up":`...)
		b = n.appendBottleneck(b, c.RunnerUp, c.RunnerUpCount, c.Heavy, c.RunnerUpEvidence)
		b = append(b, '}')
	}
	return append(appendCoverage(n.appendCandidates(b, c), by), '}')
}

// appendCoverage appends the fields of a cell about its producers.
func appendCoverage(b []byte, by *table.CellCoverage) []byte {
	if by.Expected > 0 {
		b = append(b, `,"expected_producers":`...)
		b = strconv.AppendInt(b, int64(by.Expected), 10)
	}
	if present := by.Expected - len(by.Silent); present > 0 {
		b = append(b, `,"present_producers":`...)
		b = strconv.AppendInt(b, int64(present), 10)
	}
	for i, name := range by.Silent {
		if i == 0 {
			b = append(b, `,"silent_producers":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, quote(text(name))...)
	}
	if len(by.Silent) > 0 {
		b = append(b, ']')
	}
	return b
}

// maxCandidates bounds the listed candidates of a cell.
const maxCandidates = 16

// candidates returns the ports that may be the bottleneck of a cell, the likeliest first.
func (n *names) candidates(c *aggregate.CellStats) []aggregate.Candidate {
	list := c.Candidates(func(id aggregate.LocationID) ([]string, int) {
		if l, ok := n.locations[id]; ok {
			return l.Candidates, l.CandidateCount
		}
		return nil, 0
	})
	return list[:min(len(list), maxCandidates)]
}

func (n *names) appendCandidates(b []byte, c *aggregate.CellStats) []byte {
	list := n.candidates(c)
	if len(list) == 0 {
		return b
	}
	b = append(b, `,"candidates":`...)
	for i := range list {
		b = append(b, "[,"[min(i, 1)])
		b = appendText(b, list[i].Port)
	}
	b = append(b, `],"probabilities":`...)
	for i := range list {
		b = append(b, "[,"[min(i, 1)])
		b = appendNumber(b, list[i].Probability)
	}
	return append(b, ']')
}

// appendText appends a string. Nearly all need no escaping.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, quote(text(s))...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// setCandidates is appendCandidates for a message.
func (n *names) setCandidates(out *wire.Cell, c *aggregate.CellStats) {
	for _, one := range n.candidates(c) {
		out.Candidates = append(out.Candidates, text(one.Port))
		out.Probabilities = append(out.Probabilities, sixDigits(one.Probability))
	}
}

// stateOf converts a state for messages; a test compares the names of both.
func stateOf(s aggregate.State) wire.State { return wire.State(s) + wire.State_STATE_NO_DATA }

// sinceOf is the time since when a cell is congested, nil if it is not.
func sinceOf(v *aggregate.Verdict) *timestamppb.Timestamp {
	if v.Lasted == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, v.Since))
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// kindOf converts the kind of a location for messages.
func kindOf(l *fabric.Location) wire.LocationKind {
	return cmp.Or(wire.Parse[wire.LocationKind](l.Kind), wire.LocationKind_LOCATION_KIND_UNKNOWN)
}

// cell returns the cell as a message: equal to the parsed output of appendCell.
func (n *names) cell(c *aggregate.CellStats, by *table.CellCoverage) *wire.Cell {
	per := c.Signal.Unit().PerStored()
	out := &wire.Cell{
		Src: n.groupName(c.Src), Dst: n.groupName(c.Dst), Kind: wire.Kind(c.Kind), State: stateOf(c.State), Observations: c.Observations,
		Since: sinceOf(&c.Verdict), SustainedS: sixDigits(seconds(c.Lasted)), CongestedRatio: sixDigits(share(c.CongestedWindows, c.JudgedWindows)), Unjudged: c.Unjudged,
		Samples: c.Samples, Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy,
		ExpectedProducers: uint32(by.Expected), PresentProducers: uint32(by.Expected - len(by.Silent)), SilentProducers: texts(by.Silent),
	}
	if c.Observations > 0 {
		share := sixDigits(c.HeavyShare())
		out.HeavyRatio = &share
	}
	if c.Measured > 0 {
		out.Mean = measure(c.Signal, sixDigits(c.Mean()*per))
		out.MeanError = measure(c.Signal, sixDigits(c.MeanError()))
		out.Min = measure(c.Signal, sixDigits(c.Signal.Unit().FromStored(c.Min)))
		out.Max = measure(c.Signal, sixDigits(c.Signal.Unit().FromStored(c.Max)))
		out.Trend = measure(c.Signal, sixDigits(c.TrendValue()))
	}
	if c.ModeCount > 0 {
		out.Mode = n.bottleneck(c.Mode, c.ModeCount, c.Heavy, c.ModeEvidence)
		out.Mode.Mean = measure(c.Signal, sixDigits(c.ModeMean()*per))
	}
	if c.RunnerUpCount > 0 {
		out.RunnerUp = n.bottleneck(c.RunnerUp, c.RunnerUpCount, c.Heavy, c.RunnerUpEvidence)
	}
	n.setCandidates(out, c)
	return out
}

func (n *names) bottleneck(at aggregate.LocationID, count, heavy uint64, by aggregate.Evidence) *wire.Bottleneck {
	return &wire.Bottleneck{Location: n.locationName(at), Heavy: count, ShareRatio: sixDigits(share(count, heavy)), Evidence: slices.Collect(by.Words)}
}

// sixDigits rounds to the number that appendNumber writes.
func sixDigits(v float64) float64 {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return v
	case wholeNumber(v):
		return math.Round(v)
	}
	var text [32]byte
	rounded, err := strconv.ParseFloat(string(appendNumber(text[:0], v)), 64)
	if err != nil {
		return v
	}
	return rounded
}

// appendBottleneck leaves the object open.
func (n *names) appendBottleneck(b []byte, at aggregate.LocationID, count, heavy uint64, by aggregate.Evidence) []byte {
	b = append(b, `{"location":`...)
	b = n.appendLocation(b, at)
	b = append(b, `,"heavy":`...)
	b = strconv.AppendUint(b, count, 10)
	b = append(b, `,"share_ratio":`...)
	b = append(appendNumber(b, share(count, heavy)), `,"evidence":`...)
	separator := byte('[')
	for word := range by.Words {
		b = append(append(b, separator, '"'), word...)
		b, separator = append(b, '"'), ','
	}
	return append(b, ']')
}

// appendMeasure appends a field with a wire.Measure.
func appendMeasure(b []byte, name string, s csig.Signal, v float64) []byte {
	unit := unitFields[s.Unit()]
	if unit == "" || math.IsNaN(v) || math.IsInf(v, 0) {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":{"`...)
	b = append(b, unit...)
	b = append(b, `":`...)
	b = appendNumber(b, v)
	return append(b, '}')
}

// wholeNumber reports whether a number is so large that it is written as an integer.
func wholeNumber(v float64) bool { return math.Abs(v) >= 1e6 && math.Abs(v) < 1e15 }

// appendNumber writes six significant digits, finer than any tag, and numbers from a million on
// without an exponent.
func appendNumber(b []byte, v float64) []byte {
	if wholeNumber(v) {
		return strconv.AppendInt(b, int64(math.Round(v)), 10)
	}
	return strconv.AppendFloat(b, v, 'g', 6, 64)
}

func share(part, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// ratioOf is a share, or nil if of is 0.
func ratioOf(part, of uint64) *float64 {
	if of == 0 {
		return nil
	}
	r := share(part, of)
	return &r
}

// content is a message that is not encoded yet.
type content struct {
	value proto.Message
	// view and chosen are the cells that value, a wire.CellsResponse or a wire.WindowEvent,
	// leaves out; nil if it is complete.
	view   *view
	chosen []int
	bytes  int // of value itself, if large
	// shared are the cells as JSON, for all equal requests; nil if unknown.
	shared *lazily[[]byte]
}

// json encodes the content as JSON, in two parts: the fields before the cells, and the cells. The
// caller must not modify them.
func (c *content) json(s *rest.Schema) (head, cells []byte, err error) {
	head, err = s.Append(nil, c.value)
	if err != nil || c.view == nil {
		return head, nil, err
	}
	head = head[:len(head)-len(noCells)]
	if c.shared == nil {
		return head, c.view.list(c.chosen), nil
	}
	cells, err = c.shared.get(func() ([]byte, error) { return c.view.list(c.chosen), nil })
	return head, cells, err
}

// size is the approximate memory of the content, encoded or not.
func (c *content) size() int {
	if c.view == nil {
		return leastSize + c.bytes + c.bytes*4/3
	}
	return leastSize + (textBytes+8)*len(c.chosen) + c.view.size() // the content may be the last one to keep the view
}

// whole returns the value with its cells.
func (c *content) whole() proto.Message {
	if c.view == nil {
		return c.value
	}
	whole := proto.Clone(c.value) // others read the value
	switch v := whole.(type) {
	case *wire.CellsResponse:
		v.Cells = c.view.messages(c.chosen)
	case *wire.WindowEvent:
		v.Cells = c.view.messages(c.chosen)
	}
	return whole
}

// answer is the answer to a question, from a state of the memory or, without one, from the store.
type answer struct {
	content
	state *table.State
}

// of is a complete answer.
func of(s *table.State, v proto.Message) (*answer, error) { return &answer{content{value: v}, s}, nil }

// packed is a part of a stream in its form in a gzip stream (RFC 1952): blocks of deflate (RFC
// 1951) that end at a byte and refer to nothing before them, so that each part is deflated once
// for all streams that contain it.
type packed struct {
	blocks []byte
	sum    uint32 // CRC-32 of the part
	shift  uint32 // factor for the sum of the preceding parts: x^(8*size)
	size   uint32 // of the part, in bytes, modulo 2^32
}

// packer deflates parts. It is safe for concurrent use; the zero value is ready.
type packer struct{ idle sync.Pool }

// pack deflates a part, at the fastest level: cells shrink to a sixth.
func (p *packer) pack(part []byte) (*packed, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(part)/4+64))
	w, _ := p.idle.Get().(*flate.Writer)
	if w == nil {
		var err error
		if w, err = flate.NewWriter(out, flate.BestSpeed); err != nil {
			return nil, fmt.Errorf("deflate event: %w", err)
		}
	} else {
		w.Reset(out)
	}
	if _, err := w.Write(part); err != nil {
		return nil, fmt.Errorf("deflate event: %w", err)
	}
	if err := w.Flush(); err != nil { // ends with an empty block, so that readers output all data
		return nil, fmt.Errorf("deflate event: %w", err)
	}
	p.idle.Put(w)
	return &packed{out.Bytes(), crc32.ChecksumIEEE(part), shiftOf(len(part)), uint32(len(part))}, nil
}

// gzipHead is the header of a gzip stream: deflate, without a name or a time, of unknown system
// (RFC 1952, section 2.3).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// gzipStream is the checksum and size of the parts of one stream.
type gzipStream struct{ sum, size uint32 }

// add adds a part.
func (z *gzipStream) add(p *packed) {
	z.sum = multiply(p.shift, z.sum) ^ p.sum
	z.size += p.size
}

// end ends the stream: an empty last block, the checksum and the size.
func (z *gzipStream) end() []byte {
	b := []byte{3, 0}
	b = binary.LittleEndian.AppendUint32(b, z.sum)
	return binary.LittleEndian.AppendUint32(b, z.size)
}

// multiply is the product of polynomials over GF(2), modulo that of CRC-32; the highest bit is
// the coefficient of x^0.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&(1<<31) != 0 {
			product ^= b
		}
		b = b>>1 ^ -(b&1)&crc32.IEEE
	}
	return product
}

// shiftOf is x^(8*bytes).
func shiftOf(bytes int) uint32 {
	power, square := uint32(1)<<31, uint32(1)<<(31-8)
	for n := bytes; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(square, power)
		}
		square = multiply(square, square)
	}
	return power
}

// takesGzip reports whether the client accepts gzip (RFC 9110, section 12.5.3). A client that
// accepts anything, or sends no header, gets plain answers.
func takesGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for choice := range strings.SplitSeq(line, ",") {
			coding, weight, _ := strings.Cut(choice, ";")
			coding = strings.TrimSpace(coding)
			if !strings.EqualFold(coding, "gzip") && !strings.EqualFold(coding, "x-gzip") {
				continue
			}
			name, value, given := strings.Cut(strings.TrimSpace(weight), "=")
			if !given || !strings.EqualFold(name, "q") {
				return true
			}
			q, err := strconv.ParseFloat(value, 64)
			return err == nil && q > 0
		}
	}
	return false
}
