package querytest

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
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

// ReadFrames turns frames back into the rows that they were made of.
func ReadFrames(t testing.TB, answer []byte) (query.FramesHead, []query.CellRow) {
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
	var rows []query.CellRow
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
			r := query.CellRow{
				Window: int64(f.Window), Src: aggregate.GroupID(head.Groups[int(src[i])]), Dst: aggregate.GroupID(head.Groups[int(dst[i])]),
				Kind: 1, Observations: uint64(at("observations", i)), Heavy: uint64(at("heavy", i)), Trimmed: uint64(at("trimmed", i)),
				Mean: at("mean", i), Min: at("min", i), Max: at("max", i), Mode: place(at("mode", i)),
			}
			if at("kind", i) == 2 {
				r.Kind = 2
			}
			if _, whole := numbers["runner_up"]; whole {
				r.Untouched, r.ModeCount = uint64(at("untouched", i)), uint64(at("mode_count", i))
				r.RunnerUp, r.RunnerUpCount = place(at("runner_up", i)), uint64(at("runner_up_count", i))
			}
			rows = append(rows, r)
		}
	}
	return head, rows
}
