package api

import (
	"math"
	"strconv"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/decode/csig"
)

// unitFields are the fields of model.Measure.
var unitFields = [...]string{csig.UnitNone: "", csig.BitPerSecond: "bps", csig.Ratio: "ratio", csig.Nanosecond: "ns", csig.Count: "count"}

// appendCell appends the cell as model.Cell is encoded. It is written out, since it is what
// the latency of snapshots is made of.
func (n *names) appendCell(b []byte, c *aggregate.CellStats) []byte {
	per := c.Signal.Unit().PerStored()
	b = append(b, `{"src":`...)
	b = n.appendGroup(b, c.Src)
	b = append(b, `,"dst":`...)
	b = n.appendGroup(b, c.Dst)
	b = append(b, `,"kind":"`...)
	b = append(b, c.Kind.String()...)
	b = append(b, `","state":"`...)
	b = append(b, c.State.String()...)
	b = append(b, `","observations":`...)
	b = strconv.AppendUint(b, c.Observations, 10)
	if c.Measured > 0 {
		b = appendMeasure(b, "mean", c.Signal, c.Mean()*per)
		b = appendMeasure(b, "min", c.Signal, c.Signal.Unit().FromStored(c.Min))
		b = appendMeasure(b, "max", c.Signal, c.Signal.Unit().FromStored(c.Max))
	}
	b = append(b, `,"untouched":`...)
	b = strconv.AppendUint(b, c.Untouched, 10)
	b = append(b, `,"trimmed":`...)
	b = strconv.AppendUint(b, c.Trimmed, 10)
	b = append(b, `,"heavy":`...)
	b = strconv.AppendUint(b, c.Heavy, 10)
	b = append(b, `,"heavy_ratio":`...)
	b = appendNumber(b, orZero(c.HeavyShare()))
	if c.ModeCount > 0 {
		b = append(b, `,"mode":`...)
		b = n.appendBottleneck(b, c.Mode, c.ModeCount, c.Heavy)
		b = appendMeasure(b, "mean", c.Signal, c.ModeMean()*per)
		b = append(b, '}')
	}
	if c.RunnerUpCount > 0 {
		b = append(b, `,"runner_up":`...)
		b = n.appendBottleneck(b, c.RunnerUp, c.RunnerUpCount, c.Heavy)
		b = append(b, '}')
	}
	return append(b, '}')
}

// cell is the cell as a value of the model: what appendCell writes, once it is read again.
func (n *names) cell(c *aggregate.CellStats) model.Cell {
	per := c.Signal.Unit().PerStored()
	out := model.Cell{
		Src: n.groupName(c.Src), Dst: n.groupName(c.Dst), Kind: c.Kind.String(), State: c.State.String(), Observations: c.Observations,
		Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy, HeavyRatio: sixDigits(orZero(c.HeavyShare())),
	}
	if c.Measured > 0 {
		out.Mean = measure(c.Signal, sixDigits(c.Mean()*per))
		out.Min = measure(c.Signal, sixDigits(c.Signal.Unit().FromStored(c.Min)))
		out.Max = measure(c.Signal, sixDigits(c.Signal.Unit().FromStored(c.Max)))
	}
	if c.ModeCount > 0 {
		out.Mode = n.bottleneck(c.Mode, c.ModeCount, c.Heavy)
		out.Mode.Mean = measure(c.Signal, sixDigits(c.ModeMean()*per))
	}
	if c.RunnerUpCount > 0 {
		out.RunnerUp = n.bottleneck(c.RunnerUp, c.RunnerUpCount, c.Heavy)
	}
	return out
}

func (n *names) bottleneck(at aggregate.LocationID, count, heavy uint64) *model.Bottleneck {
	return &model.Bottleneck{Location: n.locationName(at), Heavy: count, ShareRatio: sixDigits(share(count, heavy))}
}

// sixDigits is the number that appendNumber writes.
func sixDigits(v float64) float64 {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return v
	case v >= 1e6 && v < 1e15:
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
func (n *names) appendBottleneck(b []byte, at aggregate.LocationID, count, heavy uint64) []byte {
	b = append(b, `{"location":`...)
	b = n.appendLocation(b, at)
	b = append(b, `,"heavy":`...)
	b = strconv.AppendUint(b, count, 10)
	b = append(b, `,"share_ratio":`...)
	return appendNumber(b, share(count, heavy))
}

// appendMeasure appends a field with a model.Measure.
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

// appendNumber writes six significant digits, finer than any tag, and numbers from a million
// on without an exponent.
func appendNumber(b []byte, v float64) []byte {
	if v >= 1e6 && v < 1e15 {
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

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}
