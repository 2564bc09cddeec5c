package report

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
)

// heat is the share of the worst locations in each column's heavy observations. Columns
// are one step, or several where there are many.
func (b *builder) heat(ctx context.Context, worst []aggregate.LocationStats) (Heat, error) {
	span := b.data.Span()
	h := Heat{Step: span.Step, Starts: []time.Time{}, Locations: []string{}, Share: [][]float64{}, Heavy: []uint64{}}
	row := map[aggregate.LocationID]int{}
	for i := range worst[:min(len(worst), maxLocations)] {
		if worst[i].Heavy == 0 {
			break
		}
		at := b.place(worst[i].Location)
		row[worst[i].Location] = len(h.Locations)
		h.Locations, h.colors = append(h.Locations, at.Name), append(h.colors, query.Color(at))
	}
	if len(row) == 0 || span.Step <= 0 {
		return h, nil
	}
	for span.Last/int64(h.Step)-span.First/int64(h.Step) >= maxColumns {
		h.Step += span.Step
	}
	steps, err := b.data.LocationSteps(ctx, b.signal, h.Step)
	if err != nil {
		return h, err
	}
	first := span.First / int64(h.Step)
	columns := int(span.Last/int64(h.Step)-first) + 1
	h.Heavy = make([]uint64, columns)
	counts := make([][]uint64, len(h.Locations))
	for i := range counts {
		counts[i] = make([]uint64, columns)
	}
	for _, l := range steps {
		k := l.Start/int64(h.Step) - first
		if k < 0 || k >= int64(columns) {
			continue // of another time than the captures'
		}
		h.Heavy[k] += l.Heavy
		if i, ok := row[l.Location]; ok {
			counts[i][k] += l.Heavy
		}
	}
	for i := range counts {
		h.Share = append(h.Share, make([]float64, columns))
		for k, n := range counts[i] {
			h.Share[i][k] = zero(float64(n) / float64(h.Heavy[k]))
		}
	}
	for k := range columns {
		h.Starts = append(h.Starts, time.Unix(0, (first+int64(k))*int64(h.Step)).UTC())
	}
	return h, nil
}
