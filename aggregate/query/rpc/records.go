package rpc

import (
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

func flow(f *model.Flow) *wire.Flow {
	return &wire.Flow{
		Others: f.Others, SrcAddress: f.Src, SrcPort: uint32(f.SrcPort), DstAddress: f.Dst, DstPort: uint32(f.DstPort), Proto: uint32(f.Proto),
		SrcGroup: text(f.SrcGroup), DstGroup: text(f.DstGroup), Kind: f.Kind, Observations: f.Observations, Bytes: f.Bytes,
		Mean: measure(f.Mean), Min: measure(f.Min), Max: measure(f.Max), Heavy: f.Heavy, HeavyRatio: f.HeavyRatio, Windows: f.Windows,
		Mode: bottleneck(f.Mode),
	}
}

func flows(f *model.Flows) *wire.FlowsResponse {
	return &wire.FlowsResponse{
		About: about(&f.About), WindowS: f.WindowSeconds, Total: uint64(f.Total), Truncated: f.Truncated, NextCursor: f.Next, Flows: each(f.Values, flow),
	}
}

func finding(f *model.Finding) *wire.Finding {
	return &wire.Finding{
		Kind: text(f.Kind), Id: f.ID, Severity: f.Severity, First: moment(f.First), Last: moment(f.Last), Count: f.Count,
		Device: text(f.Device), Port: text(f.Port), Location: text(f.Location), Evidence: text(f.Evidence), Packets: f.Packets,
	}
}

func findings(f *model.Findings) *wire.FindingsResponse {
	return &wire.FindingsResponse{
		Source: f.Source, From: moment(f.From), To: moment(f.To), AsOf: optionalMoment(f.AsOf), Total: uint64(f.Total), Truncated: f.Truncated,
		NextCursor: f.Next, Findings: each(f.Values, finding),
	}
}

func group(g *model.Group) *wire.Group {
	return &wire.Group{Name: text(g.Name), Level: text(g.Level), Parent: text(g.Parent)}
}

func fabric(f *model.Fabric) *wire.FabricResponse {
	return &wire.FabricResponse{Name: text(f.Name), Groups: each(f.Groups, group), Locations: each(f.Locations, place)}
}

func health(h *model.Health) *wire.HealthResponse {
	return &wire.HealthResponse{
		Source: h.Source, Revision: h.Revision, Windows: uint64(h.Windows), ResolutionS: h.WindowSeconds,
		First: optionalMoment(h.First), Last: optionalMoment(h.Last), AgeS: h.AgeSeconds, CompletenessRatio: h.Completeness,
		Producers: uint64(h.Producers), ExpectedProducers: uint64(h.Expected), Watchers: uint64(h.Watchers),
		OldBlocks: h.OldBlocks, DroppedWindows: h.DroppedWindows, Signals: h.Signals,
	}
}

// watched is an event of a watch; nil for one that this protocol does not have.
func watched(name, id string, value any) *wire.WatchResponse {
	out := &wire.WatchResponse{Id: id}
	switch v := value.(type) {
	case *model.Cells:
		out.Event = &wire.WatchResponse_Snapshot{Snapshot: cells(v)}
	case *model.Synced:
		out.Event = &wire.WatchResponse_Synced{Synced: &wire.Synced{Revision: v.Revision}}
	case *model.WindowEvent:
		out.Event = &wire.WatchResponse_Window{Window: windowEvent(v)}
	case *model.Heartbeat:
		out.Event = &wire.WatchResponse_Heartbeat{Heartbeat: &wire.Heartbeat{Revision: v.Revision, Time: moment(v.Time), AgeS: v.AgeSeconds}}
	case *model.Gap:
		gap := &wire.Gap{Revision: v.Revision, Reason: v.Reason, MissedRevisions: v.Missed}
		if out.Event = (&wire.WatchResponse_Gap{Gap: gap}); name == model.EventLagging {
			out.Event = &wire.WatchResponse_Lagging{Lagging: gap}
		}
	default:
		return nil
	}
	return out
}

func windowEvent(e *model.WindowEvent) *wire.WindowEvent {
	return &wire.WindowEvent{
		Revision: e.Revision, WindowStart: moment(e.Start), WindowEnd: moment(e.End), Late: e.Late, CompletenessRatio: e.Completeness,
		Signal: e.Signal, Base: optionalMoment(e.Base), Frames: e.Frames, Cells: each(e.Values, cell),
	}
}
