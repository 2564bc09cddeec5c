package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// part is the extent of some rows of one source and resolution: what a gap says is missing.
type part struct {
	Producer     uint64 `json:"producer"`
	Incarnation  uint64 `json:"incarnation"`
	Epoch        uint64 `json:"epoch"`
	Resolution   int64  `json:"resolution"` // ns
	From         int64  `json:"from"`       // start of the first window, Unix ns
	To           int64  `json:"to"`         // end of the last window
	Rows         uint64 `json:"rows"`
	Observations uint64 `json:"observations"`
}

func (p *part) source() aggregate.Source {
	return aggregate.Source{Producer: p.Producer, Incarnation: p.Incarnation, Epoch: p.Epoch}
}

// maxParts bounds the parts of a batch; those beyond are summed up in one of producer 0.
const maxParts = 64

// addPart adds to the part of the same source and resolution.
func addPart(parts []part, p part) []part {
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].source() == p.source() && parts[i].Resolution == p.Resolution {
			parts[i].merge(&p)
			return parts
		}
	}
	if len(parts) < maxParts-1 {
		return append(parts, p)
	}
	if len(parts) < maxParts {
		return append(parts, part{From: p.From, To: p.To, Rows: p.Rows, Observations: p.Observations})
	}
	parts[maxParts-1].merge(&p)
	return parts
}

func (p *part) merge(o *part) {
	p.From, p.To = min(p.From, o.From), max(p.To, o.To)
	p.Rows += o.Rows
	p.Observations = aggregate.AddSat(p.Observations, o.Observations)
}

// gap is a row of the table gaps: rows that were taken and never stored.
type gap struct {
	part
	Reason string `json:"reason"`
	ID     uint64 `json:"id"` // of what was lost: the same gap replaces itself
	At     int64  `json:"at"` // Unix ns
}

// gapsOf are the gaps that lost parts leave, or the one of rows that nothing is known of.
func gapsOf(parts []part, reason string, id uint64, at time.Time) []gap {
	if len(parts) == 0 {
		parts = []part{{}}
	}
	list := make([]gap, len(parts))
	for i, p := range parts {
		list[i] = gap{part: p, Reason: reason, ID: id, At: at.UnixNano()}
	}
	return list
}

func decodeGaps(payload []byte) ([]gap, error) {
	var list []gap
	if err := json.Unmarshal(payload, &list); err != nil {
		return nil, fmt.Errorf("decode gaps: %w", err)
	}
	return list, nil
}

// maxGapAge bounds how old a gap may say that it is, against the server's clock. Gaps
// expire by that time: those of a machine whose clock is years behind would be gone as
// soon as they are stored.
const maxGapAge = 30 * 24 * time.Hour

// sendGaps writes gap rows; writing them again replaces them.
func (s *Store) sendGaps(ctx context.Context, list []gap) error {
	var now time.Time
	if err := s.reader.QueryRow(undated{ctx}, "SELECT now64(3, 'UTC')").Scan(&now); err != nil {
		return err
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].At = min(max(list[i].At, now.Add(-maxGapAge).UnixNano()), now.UnixNano())
	}
	const columns = "gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at)"
	to, err := s.names.PrepareBatch(ctx, "INSERT INTO "+s.database+"."+columns)
	if err != nil {
		return err
	}
	defer to.Close()
	for i := range list {
		if err := list[i].appendTo(to); err != nil {
			return err
		}
	}
	return to.Send()
}

func (g *gap) appendTo(to driver.Batch) error {
	utc := func(ns int64) time.Time { return time.Unix(0, min(max(ns, 0), endOfTime)).UTC() }
	return to.Append(g.Producer, g.Incarnation, g.Epoch, uint64(max(g.Resolution, 0)), utc(g.From), utc(g.To),
		g.Rows, g.Observations, g.Reason, g.ID, utc(g.At))
}
