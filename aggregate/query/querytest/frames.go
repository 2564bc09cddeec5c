package querytest

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
)

// column reads n numbers of a frame.
func column(t testing.TB, data []byte, c query.Column, n int) []float64 {
	t.Helper()
	out := make([]float64, n)
	for i := range out {
		switch c.Type {
		case "":
			out[i] = float64(c.Value)
		case "u8":
			out[i] = float64(data[c.At+i])
		case "u16":
			out[i] = float64(binary.LittleEndian.Uint16(data[c.At+2*i:]))
		case "u32":
			out[i] = float64(binary.LittleEndian.Uint32(data[c.At+4*i:]))
		case "f32":
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[c.At+4*i:])))
		case "f64":
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[c.At+8*i:]))
		default:
			t.Fatalf("column of type %q", c.Type)
		}
	}
	return out
}

// FrameRow is the content of frames for a cell in a window. Values are in the signal's unit.
type FrameRow struct {
	Start                     int64 // of the window, Unix ns
	Src, Dst                  aggregate.GroupID
	Kind                      decode.Kind
	Observations, Samples     uint64
	State                     aggregate.State
	Mean, Min, Max            float64
	Untouched, Trimmed, Heavy uint64
	Mode, RunnerUp            aggregate.LocationID
	ModeCount, RunnerUpCount  uint64
	ModeBy, RunnerUpBy        aggregate.Evidence
}

// FrameRowOf is the expected content of frames for the cell.
func FrameRowOf(c *aggregate.CellWindow) FrameRow {
	return FrameRow{
		Start: c.Start, Src: c.Src, Dst: c.Dst, Kind: c.Kind, State: c.State, Observations: c.Observations, Samples: c.Samples,
		Mean: c.MeanValue(), Min: c.MinValue(), Max: c.MaxValue(), Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy,
		Mode: c.Mode, ModeCount: c.ModeCount, RunnerUp: c.RunnerUp, RunnerUpCount: c.RunnerUpCount, ModeBy: c.ModeEvidence, RunnerUpBy: c.RunnerUpEvidence,
	}
}

// ReadFrames reads the rows of frames.
func ReadFrames(t testing.TB, answer []byte) (query.FramesHead, []FrameRow) {
	t.Helper()
	length := binary.LittleEndian.Uint32(answer)
	if (4+length)%8 != 0 {
		t.Fatalf("columns begin at byte %d, want a multiple of 8", 4+length)
	}
	var head query.FramesHead
	if err := json.Unmarshal(answer[4:4+length], &head); err != nil {
		t.Fatal(err)
	}
	data := answer[4+length:]
	place := func(v float64) aggregate.LocationID {
		if v == 0 {
			return aggregate.NoLocation
		}
		return aggregate.LocationID(head.Locations[int(v)-1])
	}
	var rows []FrameRow
	for _, f := range head.Frames {
		l := head.Layouts[f.Layout]
		src := column(t, data, query.Column{Type: "u16", At: l.Src}, l.Rows)
		dst := column(t, data, query.Column{Type: "u16", At: l.Dst}, l.Rows)
		numbers := map[string][]float64{}
		for name, c := range f.Columns {
			numbers[name] = column(t, data, c, l.Rows)
		}
		at := func(name string, i int) float64 {
			if column, ok := numbers[name]; ok {
				return column[i]
			}
			return math.NaN()
		}
		for i := range l.Rows {
			r := FrameRow{
				Start: int64(f.Window), Src: aggregate.GroupID(head.Groups[int(src[i])]), Dst: aggregate.GroupID(head.Groups[int(dst[i])]),
				Kind: 1, State: aggregate.State(at("state", i)), Observations: uint64(at("observations", i)), Samples: uint64(at("samples", i)), Heavy: uint64(at("heavy", i)), Trimmed: uint64(at("trimmed", i)),
				Mean: at("mean", i), Min: at("min", i), Max: at("max", i), Mode: place(at("mode", i)),
			}
			if at("kind", i) == 2 {
				r.Kind = 2
			}
			if _, whole := numbers["runner_up"]; whole {
				r.Untouched, r.ModeCount = uint64(at("untouched", i)), uint64(at("mode_count", i))
				r.RunnerUp, r.RunnerUpCount = place(at("runner_up", i)), uint64(at("runner_up_count", i))
				r.ModeBy, r.RunnerUpBy = aggregate.Evidence(at("mode_evidence", i)), aggregate.Evidence(at("runner_up_evidence", i))
			}
			rows = append(rows, r)
		}
	}
	return head, rows
}
