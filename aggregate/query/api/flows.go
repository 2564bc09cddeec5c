package api

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxRecords bounds the flows or findings of an answer, on all pages.
	maxRecords = 20_000
	// lastStored is the range of questions about records that name none, before the end of
	// what is stored.
	lastStored = time.Hour
)

// LastInput chooses a range of what is in the store alone.
type LastInput struct {
	From string `query:"from" maxLength:"40" doc:"RFC 3339: begin of the range, in whole seconds; the last hour that is stored without from and to" example:"2026-01-20T09:00:00Z"`
	To   string `query:"to" maxLength:"40" doc:"RFC 3339: end of the range, exclusive; with from" example:"2026-01-20T10:00:00Z"`
}

// RecordsInput chooses a page of what is in the store alone.
type RecordsInput struct {
	PageInput
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"of a page" example:"1000"`
}

// span is the range of a question whose pages are pinned; at takes it up.
func (in *LastInput) span(at *pin, e query.Extent) error {
	from, to, given, err := (&TimesInput{From: in.From, To: in.To}).history()
	switch {
	case err != nil:
		return err
	case given:
		at.from, at.to = from.UnixNano(), to.UnixNano()
	case at.seen():
	case e.Empty():
		return query.ErrNoData
	default:
		end := e.Last.Add(time.Second - 1).Truncate(time.Second)
		at.from, at.to = end.Add(-lastStored).UnixNano(), end.UnixNano()
	}
	return nil
}

func (p *pin) span() (from, to time.Time) {
	return time.Unix(0, p.from).UTC(), time.Unix(0, p.to).UTC()
}

// FlowInput chooses flows.
type FlowInput struct {
	Signal string `query:"signal" default:"min_abw_ratio" maxLength:"40" doc:"min_abw, min_abw_ratio, max_delay, max_nqd or type_N; type_N:AGGREGATION:UNIT where a type has several meanings" example:"min_abw"`
	LastInput
	GroupInput
	SrcAddress string   `query:"src_address" maxLength:"60" doc:"address or prefix that sources are in" example:"10.0.1.0/24"`
	DstAddress string   `query:"dst_address" maxLength:"60" doc:"address or prefix that destinations are in" example:"10.0.2.1"`
	Kind       []string `query:"kind,explode" maxItems:"2" enum:"tag,reflection" doc:"of observations" example:"tag"`
	MinHeavy   uint64   `query:"min_heavy" maximum:"9223372036854775807" doc:"least number of heavily loaded observations" example:"10"`
	Window     string   `query:"window" default:"1s" enum:"1s,1m" doc:"length of the windows that name flows" example:"1s"`
}

type flowsInput struct {
	FlowInput
	RecordsInput
}

func (a *API) flows(ctx context.Context, _ *table.State, in *flowsInput) (*answer, error) {
	at, err := pinAt(in.Cursor, questionHash(in.FlowInput))
	if err != nil {
		return nil, err
	}
	q, n, err := a.flowQuestion(ctx, &in.FlowInput, &at)
	if err != nil {
		return nil, err
	}
	p, err := paged(a, at, in.Limit, maxRecords, func() ([]model.Flow, error) {
		rows, err := a.Reader.Flows(ctx, q)
		list := make([]model.Flow, len(rows))
		for i := range rows {
			list[i] = n.flow(q.Signal, &rows[i])
		}
		return list, err
	})
	if err != nil {
		return nil, err
	}
	about := pastAbout(query.Question{Signal: q.Signal, From: q.From, To: q.To})
	about.AsOf = p.asOf
	return of(nil, &model.Flows{
		About: about, WindowSeconds: q.Resolution.Seconds(), Total: p.total, Truncated: p.truncated, Next: p.next, Values: p.rows,
	})
}

// flowQuestion resolves names.
func (a *API) flowQuestion(ctx context.Context, in *FlowInput, at *pin) (q query.FlowQuestion, n *names, err error) {
	extent, err := a.stored(ctx)
	if err != nil {
		return q, nil, err
	}
	if err := in.span(at, extent); err != nil {
		return q, nil, err
	}
	q = query.FlowQuestion{MinHeavy: in.MinHeavy, Limit: maxRecords + 1, Resolution: time.Second}
	q.From, q.To = at.span()
	if in.Window == "1m" {
		q.Resolution = time.Minute
	}
	k, err := (&SignalInput{in.Signal, "location"}).key(1, extent.Signals)
	if err != nil {
		return q, nil, err
	}
	q.Signal = k.signal
	if tags := slices.Contains(in.Kind, decode.Tag.String()); tags != slices.Contains(in.Kind, decode.Reflection.String()) {
		q.Kind = decode.Reflection
		if tags {
			q.Kind = decode.Tag
		}
	}
	if q.Src, err = parsePrefix("src_address", in.SrcAddress); err != nil {
		return q, nil, err
	}
	if q.Dst, err = parsePrefix("dst_address", in.DstAddress); err != nil {
		return q, nil, err
	}
	if n, err = a.history(ctx); err != nil {
		return q, nil, err
	}
	if q.SrcGroups, err = n.findGroups("src", in.Src); err != nil {
		return q, nil, err
	}
	q.DstGroups, err = n.findGroups("dst", in.Dst)
	return q, n, err
}

// parsePrefix reads an address or a prefix; the zero Prefix is of an empty text.
func parsePrefix(parameter, text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, wrong(parameter, text, "expected an address or a prefix, such as 10.0.1.0/24")
	}
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}

func (n *names) flow(s csig.Signal, r *query.FlowRow) model.Flow {
	f := model.Flow{
		Others: !r.Src.IsValid(), SrcGroup: n.groupName(r.SrcGroup), DstGroup: n.groupName(r.DstGroup), Kind: r.Kind.String(),
		Observations: r.Observations, Bytes: r.Bytes, Mean: measure(s, r.Mean), Min: measure(s, r.Min), Max: measure(s, r.Max),
		Heavy: r.Heavy, HeavyRatio: share(r.Heavy, r.Observations), Windows: r.Windows,
	}
	if !f.Others {
		f.Src, f.SrcPort, f.Dst, f.DstPort, f.Proto = r.Src.String(), r.SrcPort, r.Dst.String(), r.DstPort, r.Proto
	}
	if r.LocationHeavy > 0 && r.Location != aggregate.NoLocation {
		f.Mode = &model.Bottleneck{Location: n.locationName(r.Location), Heavy: r.LocationHeavy, ShareRatio: share(r.LocationHeavy, r.Heavy)}
	}
	return f
}
