package api

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxRecords bounds the flows or findings of an answer, over all pages.
	maxRecords = 20_000
	// lastStored is the default range of questions about records: it ends with the last stored
	// record.
	lastStored = time.Hour
)

// choose sets the range of a question with pinned pages: by default the last stored hour.
func (p *pin) choose(in times, e query.Extent) error {
	from, to, given, err := historyOf(in)
	switch {
	case err != nil:
		return err
	case given:
		p.from, p.to = from.UnixNano(), to.UnixNano()
	case p.seen():
	case e.Empty():
		return query.ErrNoData
	default:
		end := e.Last.Add(time.Second - 1).Truncate(time.Second)
		p.from, p.to = startOf(end, lastStored).UnixNano(), end.UnixNano()
	}
	return nil
}

// startOf returns the start of a range by its end and length; no question begins before 1970.
func startOf(end time.Time, length time.Duration) time.Time {
	return time.Unix(0, max(end.UnixNano()-int64(length), 0))
}

func (p *pin) span() (from, to time.Time) {
	return time.Unix(0, p.from).UTC(), time.Unix(0, p.to).UTC()
}

// flowChoice is a request that selects flows.
type flowChoice interface {
	times
	ends
	GetSignal() string
	GetSrcAddress() string
	GetDstAddress() string
	GetKind() []wire.Kind
	GetMinHeavy() uint64
	GetWindow() string
}

func (a *API) flows(ctx context.Context, _ *table.State, in *wire.FlowsRequest) (*answer, error) {
	at, err := pinAt(in.GetCursor(), questionHash(in))
	if err != nil {
		return nil, err
	}
	if in.Windows != nil {
		return a.flowsNow(ctx, in, at)
	}
	q, extent, err := a.flowQuestion(ctx, in, &at)
	if err != nil {
		return nil, err
	}
	p, err := paged(a, at, int(in.GetLimit()), maxRecords, func() ([]*wire.Flow, bool, error) {
		rows, err := a.Reader.Flows(ctx, q)
		if err != nil {
			return nil, false, err
		}
		n, err := a.knowFlows(ctx, rows)
		if err != nil {
			return nil, false, err
		}
		list := make([]*wire.Flow, len(rows))
		for i := range rows {
			list[i] = n.flow(q.Signal, &rows[i])
		}
		return list, false, nil
	})
	if err != nil {
		return nil, err
	}
	about := a.pastAbout(pastQuestion{Question: query.Question{Signal: q.Signal, From: q.From, To: q.To}, last: extent.Last}, p.asOf.AsTime())
	return of(nil, &wire.FlowsResponse{
		About: about, WindowS: q.Resolution.Seconds(), Total: uint64(p.total), Truncated: p.truncated, NextCursor: p.next, Flows: p.rows,
	})
}

// flowsNow answers from memory. All its pages cover the same windows.
func (a *API) flowsNow(ctx context.Context, in *wire.FlowsRequest, at pin) (*answer, error) {
	switch {
	case in.GetFrom() != nil || in.GetTo() != nil:
		return nil, wrong("windows", "", "asks memory, from and to ask the store: leave one of them out")
	case in.GetWindow() != "1s":
		return nil, wrong("window", in.GetWindow(), "memory holds the flows of windows of 1s: leave window out")
	}
	m, err := a.memoryOf(in)
	if err != nil {
		return nil, err
	}
	s := m.State()
	windows := s.Last(int(in.GetWindows()))
	if at.seen() {
		windows = slices.DeleteFunc(slices.Clone(s.Windows), func(w *table.Window) bool { return w.Start.UnixNano() < at.from || w.Start.UnixNano() >= at.to })
	} else if len(windows) > 0 {
		at.from, at.to = windows[0].Start.UnixNano(), windows[len(windows)-1].End.UnixNano()
	}
	q, n, err := a.flowFilter(ctx, in, &a.names, s.Signals())
	if err != nil {
		return nil, err
	}
	p, err := paged(a, at, int(in.GetLimit()), maxRecords, func() ([]*wire.Flow, bool, error) {
		rows, complete := query.FlowsOfWindows(windows, q, s.Old(windows))
		list := make([]*wire.Flow, len(rows))
		for i := range rows {
			list[i] = n.flow(q.Signal, &rows[i])
		}
		return list, !complete, nil
	})
	if err != nil {
		return nil, err
	}
	type aboutOf struct {
		signal         csig.Signal
		from, to, asOf int64
	}
	about, _ := getOrCompute(a.cache, aboutOf{q.Signal, at.from, at.to, p.asOf.AsTime().UnixNano()}, func() (*wire.About, int, error) {
		about := a.aboutWindows(s, viewKey{signal: q.Signal}, windows)
		about.AsOf = p.asOf
		return about, 0, nil
	})
	return of(s, &wire.FlowsResponse{
		About: about, WindowS: s.Resolution.Seconds(), Total: uint64(p.total), Truncated: p.truncated, NextCursor: p.next, Flows: p.rows,
	})
}

// flowQuestion returns the question to the store about the pin's range, and the store's extent. Where windows of 1 s
// have expired it asks for flows of 1 min.
func (a *API) flowQuestion(ctx context.Context, in flowChoice, at *pin) (q query.FlowQuestion, extent query.Extent, err error) {
	if extent, err = a.stored(ctx); err != nil {
		return q, extent, err
	}
	if err := at.choose(in, extent); err != nil {
		return q, extent, err
	}
	extent.Last = at.keep(extent.Last)
	q, _, err = a.flowFilter(ctx, in, a.history(), extent.Signals)
	q.From, q.To = at.span()
	q.Resolution = time.Second
	if in.GetWindow() == "1m" || extent.OnlyMinutes(q.From) {
		q.Resolution = time.Minute
		q.From, q.To = q.From.Truncate(time.Minute), q.To.Add(time.Minute-1).Truncate(time.Minute)
	}
	return q, extent, err
}

// flowFilter resolves names.
func (a *API) flowFilter(ctx context.Context, in flowChoice, among *namesCache, signals []csig.Signal) (q query.FlowQuestion, n *names, err error) {
	q = query.FlowQuestion{MinHeavy: in.GetMinHeavy(), Limit: maxRecords + 1}
	if q.Signal, err = findSignal(in.GetSignal(), signals); err != nil {
		return q, nil, err
	}
	if tags := slices.Contains(in.GetKind(), wire.Kind_KIND_TAG); tags != slices.Contains(in.GetKind(), wire.Kind_KIND_REFLECTION) {
		q.Kind = decode.Reflection
		if tags {
			q.Kind = decode.Tag
		}
	}
	if q.Src, err = parsePrefix("src_address", in.GetSrcAddress()); err != nil {
		return q, nil, err
	}
	if q.Dst, err = parsePrefix("dst_address", in.GetDstAddress()); err != nil {
		return q, nil, err
	}
	n, err = resolve(ctx, among, func(n *names) (err error) {
		if q.SrcGroups, err = n.findGroups("src", in.GetSrc()); err != nil {
			return err
		}
		if q.DstGroups, err = n.findGroups("dst", in.GetDst()); err != nil {
			return err
		}
		if c, ok := in.(locationChoice); ok {
			q.Locations, err = n.findLocations(c.GetLocation(), c.GetLink())
		}
		return err
	})
	return q, n, err
}

// locationChoice is a request that selects by location.
type locationChoice interface {
	GetLocation() []string
	GetLink() []string
}

// findLocations returns the locations with those names, and those that may be the named links.
// Without names, all locations are selected.
func (n *names) findLocations(locations, links []string) (ids []aggregate.LocationID, err error) {
	for _, name := range locations {
		found, ok := n.locationIDs[name]
		if !ok {
			return nil, n.unknown("location", name, "location")
		}
		ids = append(ids, found...)
	}
	for _, name := range links {
		found, ok := n.locationIDs[name]
		if !ok {
			return nil, n.unknown("link", name, "link")
		}
		ids = append(ids, found...)
		for id, l := range n.locations {
			if slices.Contains(l.Candidates, name) {
				ids = append(ids, id)
			}
		}
	}
	return ordered(ids), nil
}

// knowFlows returns names that include the groups and locations of flows.
func (a *API) knowFlows(ctx context.Context, rows []query.FlowTotal) (*names, error) {
	return a.history().knowing(ctx, func(n *names) bool {
		return !slices.ContainsFunc(rows, func(r query.FlowTotal) bool {
			return n.group[r.SrcGroup] == "" || n.group[r.DstGroup] == "" || !n.knowLocation(r.Location)
		})
	})
}

// parsePrefix parses an address or a prefix; an empty text is the zero Prefix.
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

func (n *names) flow(s csig.Signal, r *query.FlowTotal) *wire.Flow {
	f := &wire.Flow{
		Others: !r.Src.IsValid(), SrcGroup: n.groupName(r.SrcGroup), DstGroup: n.groupName(r.DstGroup), Kind: wire.Kind(r.Kind),
		Observations: r.Observations, Bytes: r.Bytes, Mean: measure(s, r.Mean), Min: measure(s, r.Min), Max: measure(s, r.Max),
		Heavy: r.Heavy, HeavyRatio: share(r.Heavy, r.Observations), Windows: r.Windows, Sampled: r.Sampled,
	}
	if !f.Others {
		f.SrcAddress, f.SrcPort = r.Src.String(), uint32(r.SrcPort)
		f.DstAddress, f.DstPort, f.Proto = r.Dst.String(), uint32(r.DstPort), uint32(r.Proto)
	}
	if r.LocationHeavy > 0 && r.Location != aggregate.NoLocation {
		f.Mode = &wire.Bottleneck{Location: n.locationName(r.Location), Heavy: r.LocationHeavy, ShareRatio: share(r.LocationHeavy, r.Heavy)}
	}
	return f
}

// findingChoice is a request that selects findings.
type findingChoice interface {
	times
	GetKind() []string
	GetSeverity() []wire.Severity
	GetDevice() []string
	GetLocation() []string
}

// findingQuestion resolves names.
func (a *API) findingQuestion(ctx context.Context, in findingChoice, at *pin) (q query.FindingQuestion, err error) {
	extent, err := a.stored(ctx)
	if err != nil {
		return q, err
	}
	if err := at.choose(in, extent); err != nil {
		return q, err
	}
	q = query.FindingQuestion{Kinds: in.GetKind(), Devices: in.GetDevice(), Limit: maxRecords + 1}
	for _, s := range in.GetSeverity() {
		q.Severities = append(q.Severities, s.Word())
	}
	q.From, q.To = at.span()
	_, err = a.resolve(ctx, func(n *names) (err error) {
		q.Locations, err = n.findLocations(in.GetLocation(), nil)
		return err
	})
	return q, err
}

// knowFindings returns names that include the locations of findings.
func (a *API) knowFindings(ctx context.Context, rows []query.FindingRow) (*names, error) {
	return a.history().knowing(ctx, func(n *names) bool {
		return !slices.ContainsFunc(rows, func(r query.FindingRow) bool { return !n.knowLocation(r.Location) })
	})
}

func (a *API) findings(ctx context.Context, _ *table.State, in *wire.FindingsRequest) (*answer, error) {
	at, err := pinAt(in.GetCursor(), questionHash(in))
	if err != nil {
		return nil, err
	}
	q, err := a.findingQuestion(ctx, in, &at)
	if err != nil {
		return nil, err
	}
	p, err := paged(a, at, int(in.GetLimit()), maxRecords, func() ([]*wire.Finding, bool, error) {
		rows, err := a.Reader.Findings(ctx, q)
		if err != nil {
			return nil, false, err
		}
		n, err := a.knowFindings(ctx, rows)
		if err != nil {
			return nil, false, err
		}
		list := make([]*wire.Finding, len(rows))
		for i := range rows {
			list[i] = n.finding(&rows[i])
		}
		return list, false, nil
	})
	if err != nil {
		return nil, err
	}
	return of(nil, &wire.FindingsResponse{
		Source: "store", From: timestamppb.New(q.From), To: timestamppb.New(q.To), AsOf: p.asOf, Total: uint64(p.total), Truncated: p.truncated,
		NextCursor: p.next, Findings: p.rows,
	})
}

func (n *names) finding(r *query.FindingRow) *wire.Finding {
	f := &wire.Finding{
		Kind: text(r.Kind), Id: fmt.Sprintf("%016x", r.ID), Severity: wire.Parse[wire.Severity](r.Severity), Count: r.Count,
		Last: stampOf(r.To), Device: text(r.Device), Port: text(r.Port), Evidence: text(r.Evidence), Packets: r.Packets,
	}
	if f.Last != nil { // else neither is known
		f.First = timestamppb.New(time.Unix(0, r.From))
	}
	if r.Location != aggregate.NoLocation {
		f.Location = n.locationName(r.Location)
	}
	return f
}
