package handover

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Directory stores the meaning of exporters' blocks and their records. It implements
// remote.Directory, and is as safe for concurrent use as the Store.
type Directory struct{ *store.Store }

func runsOf(list []remote.Run) []store.Run {
	runs := make([]store.Run, len(list))
	for i, r := range list {
		runs[i] = store.Run{Source: r.Source, Mode: store.RunLive, Name: r.Exporter + "/" + r.Stream}
	}
	return runs
}

// BeginRuns implements remote.Directory.
func (d Directory) BeginRuns(ctx context.Context, list []remote.Run) error {
	return d.Store.BeginRuns(ctx, runsOf(list))
}

// EndRuns implements remote.Directory.
func (d Directory) EndRuns(ctx context.Context, list []remote.Run) error {
	return d.Store.EndRuns(ctx, runsOf(list))
}

// EndEarlier implements remote.Directory.
func (d Directory) EndEarlier(ctx context.Context, list []remote.Run) error {
	return d.Store.EndEarlier(ctx, runsOf(list))
}

// WriteTaps implements remote.Directory. Exporters choose the names of their taps, so stored
// names begin with the exporter's. Findings are stored under the numbers of the rows.
func (d Directory) WriteTaps(ctx context.Context, list []remote.TapRow) error {
	rows := make([]store.TapRow, len(list))
	var found []store.FindingRow
	for i := range list {
		rows[i] = tapOfWire(list[i].Tap)
		rows[i].Source, rows[i].Name = list[i].Source, list[i].Exporter+"/"+rows[i].Name
		for _, f := range list[i].Findings {
			found = append(found, findingOfWire(f, rows[i].Source, rows[i].Seq))
		}
	}
	return journal.ToStore(d.Store).Taps(ctx, rows, found)
}

// WriteGaps implements remote.Directory.
func (d Directory) WriteGaps(ctx context.Context, list []remote.Gap) error {
	gaps := make([]store.Gap, len(list))
	for i, g := range list {
		gaps[i] = store.Gap{
			Source: g.Source, From: time.Unix(0, g.GetFromNs()), To: time.Unix(0, g.GetToNs()), Reason: g.GetReason(),
			Resolution: time.Duration(g.GetResolutionNs()), Rows: g.GetRows(), Observations: g.GetObservations(), ID: g.GetId(),
		}
	}
	return d.Store.WriteGaps(ctx, gaps)
}

// WriteFindings implements remote.Directory.
func (d Directory) WriteFindings(ctx context.Context, list []remote.Finding) error {
	rows := make([]store.FindingRow, len(list))
	for i, f := range list {
		rows[i] = findingOfWire(f.Finding, f.Source, 0)
	}
	return d.Store.WriteFindings(ctx, rows)
}

// wireGap is the inverse of the conversion in WriteGaps.
func wireGap(g *store.Gap) *wire.Gap {
	return &wire.Gap{
		FromNs: g.From.UnixNano(), ToNs: g.To.UnixNano(), Reason: g.Reason, ResolutionNs: int64(g.Resolution),
		Rows: g.Rows, Observations: g.Observations, Id: g.ID,
	}
}

// tapOfWire converts a tap's record to a row without its source.
func tapOfWire(t *wire.Tap) store.TapRow {
	return store.TapRow{
		Seq: t.GetSeq(), Name: t.GetName(), Place: t.GetPlace(), Interface: t.GetInterface(), Link: t.GetLink(),
		Timestamps: t.GetTimestamps(), TickNS: t.GetTickNs(), From: t.GetFromNs(), To: t.GetToNs(),
		Packets: t.GetPackets(), Bytes: t.GetBytes(), Frames: t.GetFrames(),
		Tags: t.GetTags(), Reflections: t.GetReflections(),
		Observations: t.GetObservations(), Stored: t.GetStored(), Overflow: t.GetOverflow(), Late: t.GetLate(),
		Rejected: t.GetRejected(), Untouched: t.GetUntouched(), Trimmed: t.GetTrimmed(),
		KernelDrops: t.GetKernelDrops(), Freezes: t.GetFreezes(), Lost: t.GetLost(), SkewNS: t.GetSkewNs(),
		SuperFrames: t.GetSuperFrames(),
	}
}

// wireTap is the inverse of tapOfWire.
func wireTap(r *store.TapRow) *wire.Tap {
	return &wire.Tap{
		Seq: r.Seq, Name: r.Name, Place: r.Place, Interface: r.Interface, Link: r.Link,
		Timestamps: r.Timestamps, TickNs: r.TickNS, FromNs: r.From, ToNs: r.To,
		Packets: r.Packets, Bytes: r.Bytes, Frames: r.Frames,
		Tags: r.Tags, Reflections: r.Reflections,
		Observations: r.Observations, Stored: r.Stored, Overflow: r.Overflow, Late: r.Late,
		Rejected: r.Rejected, Untouched: r.Untouched, Trimmed: r.Trimmed,
		KernelDrops: r.KernelDrops, Freezes: r.Freezes, Lost: r.Lost, SkewNs: r.SkewNS,
		SuperFrames: r.SuperFrames,
	}
}
