package api

import (
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/decode/csig"
)

type cellRow = query.CellRow

// cellLine is a cell in a table.
type cellLine struct {
	from, to time.Time
	signal   string
	model.Cell
}

// flowLine is a flow in a table.
type flowLine struct {
	from, to time.Time
	model.Flow
}

// suffix is what the names of columns of values in the unit end in.
func suffix(unit string) string {
	if u, err := csig.ParseUnit(unit); err == nil && unitFields[u] != "" {
		return "_" + unitFields[u]
	}
	return ""
}

// valued is a column of values with a unit.
func valued[T any](name, unit string, get func(*T) *model.Measure) tabular.Column[T] {
	return tabular.Column[T]{Name: name + suffix(unit), Real: func(row *T) float64 {
		v, _, ok := get(row).Value()
		if !ok {
			return math.NaN()
		}
		return v
	}}
}

// bottlenecks are the columns of a location that observations name.
func bottlenecks[T any](name string, get func(*T) *model.Bottleneck) []tabular.Column[T] {
	return []tabular.Column[T]{
		{Name: name, Text: func(row *T) string {
			if b := get(row); b != nil {
				return b.Location
			}
			return ""
		}},
		{Name: name + "_heavy", Count: func(row *T) uint64 {
			if b := get(row); b != nil {
				return b.Heavy
			}
			return 0
		}},
		{Name: name + "_share_ratio", Real: func(row *T) float64 {
			if b := get(row); b != nil {
				return b.ShareRatio
			}
			return math.NaN()
		}},
	}
}

func cellColumns(unit string) []tabular.Column[cellLine] {
	list := []tabular.Column[cellLine]{
		{Name: "from", Time: func(c *cellLine) time.Time { return c.from }},
		{Name: "to", Time: func(c *cellLine) time.Time { return c.to }},
		{Name: "signal", Text: func(c *cellLine) string { return c.signal }},
		{Name: "src", Text: func(c *cellLine) string { return c.Src }},
		{Name: "dst", Text: func(c *cellLine) string { return c.Dst }},
		{Name: "kind", Text: func(c *cellLine) string { return c.Kind }},
		{Name: "state", Text: func(c *cellLine) string { return c.State }},
		{Name: "observations", Count: func(c *cellLine) uint64 { return c.Observations }},
		valued("mean", unit, func(c *cellLine) *model.Measure { return c.Mean }),
		valued("min", unit, func(c *cellLine) *model.Measure { return c.Min }),
		valued("max", unit, func(c *cellLine) *model.Measure { return c.Max }),
		{Name: "untouched", Count: func(c *cellLine) uint64 { return c.Untouched }},
		{Name: "trimmed", Count: func(c *cellLine) uint64 { return c.Trimmed }},
		{Name: "heavy", Count: func(c *cellLine) uint64 { return c.Heavy }},
		{Name: "heavy_ratio", Real: func(c *cellLine) float64 { return c.HeavyRatio }},
	}
	list = append(list, bottlenecks("mode", func(c *cellLine) *model.Bottleneck { return c.Mode })...)
	return append(list, bottlenecks("runner_up", func(c *cellLine) *model.Bottleneck { return c.RunnerUp })...)
}

func flowColumns(unit string) []tabular.Column[flowLine] {
	list := []tabular.Column[flowLine]{
		{Name: "from", Time: func(f *flowLine) time.Time { return f.from }},
		{Name: "to", Time: func(f *flowLine) time.Time { return f.to }},
		{Name: "others", Flag: func(f *flowLine) bool { return f.Others }},
		{Name: "src_address", Text: func(f *flowLine) string { return f.Src }},
		{Name: "src_port", Count: func(f *flowLine) uint64 { return uint64(f.SrcPort) }},
		{Name: "dst_address", Text: func(f *flowLine) string { return f.Dst }},
		{Name: "dst_port", Count: func(f *flowLine) uint64 { return uint64(f.DstPort) }},
		{Name: "proto", Count: func(f *flowLine) uint64 { return uint64(f.Proto) }},
		{Name: "src_group", Text: func(f *flowLine) string { return f.SrcGroup }},
		{Name: "dst_group", Text: func(f *flowLine) string { return f.DstGroup }},
		{Name: "kind", Text: func(f *flowLine) string { return f.Kind }},
		{Name: "observations", Count: func(f *flowLine) uint64 { return f.Observations }},
		{Name: "bytes", Count: func(f *flowLine) uint64 { return f.Bytes }},
		valued("mean", unit, func(f *flowLine) *model.Measure { return f.Mean }),
		valued("min", unit, func(f *flowLine) *model.Measure { return f.Min }),
		valued("max", unit, func(f *flowLine) *model.Measure { return f.Max }),
		{Name: "heavy", Count: func(f *flowLine) uint64 { return f.Heavy }},
		{Name: "heavy_ratio", Real: func(f *flowLine) float64 { return f.HeavyRatio }},
		{Name: "windows", Count: func(f *flowLine) uint64 { return f.Windows }},
	}
	return append(list, bottlenecks("mode", func(f *flowLine) *model.Bottleneck { return f.Mode })...)
}

func findingColumns() []tabular.Column[model.Finding] {
	return []tabular.Column[model.Finding]{
		{Name: "kind", Text: func(f *model.Finding) string { return f.Kind }},
		{Name: "id", Text: func(f *model.Finding) string { return f.ID }},
		{Name: "severity", Text: func(f *model.Finding) string { return f.Severity }},
		{Name: "first", Time: func(f *model.Finding) time.Time { return f.First }},
		{Name: "last", Time: func(f *model.Finding) time.Time { return f.Last }},
		{Name: "count", Count: func(f *model.Finding) uint64 { return f.Count }},
		{Name: "device", Text: func(f *model.Finding) string { return f.Device }},
		{Name: "port", Text: func(f *model.Finding) string { return f.Port }},
		{Name: "location", Text: func(f *model.Finding) string { return f.Location }},
		{Name: "evidence", Text: func(f *model.Finding) string { return f.Evidence }},
	}
}
