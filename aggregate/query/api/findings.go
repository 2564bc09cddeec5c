package api

import (
	"context"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

// FindingInput chooses findings.
type FindingInput struct {
	LastInput
	Kind     []string `query:"kind,explode" maxItems:"64" doc:"kinds of findings" example:"rogue-insertion"`
	Severity []string `query:"severity,explode" maxItems:"3" enum:"info,warning,error" doc:"severities" example:"error"`
	Device   []string `query:"device,explode" maxItems:"64" doc:"devices that they are about" example:"leaf3"`
	Location []string `query:"location,explode" maxItems:"64" doc:"locations that they are about" example:"leaf3:up1"`
}

type findingsInput struct {
	FindingInput
	RecordsInput
}

// findingQuestion resolves names.
func (a *API) findingQuestion(ctx context.Context, in *FindingInput, at *pin) (q query.FindingQuestion, n *names, err error) {
	extent, err := a.stored(ctx)
	if err != nil {
		return q, nil, err
	}
	if err := in.span(at, extent); err != nil {
		return q, nil, err
	}
	if n, err = a.history(ctx); err != nil {
		return q, nil, err
	}
	q = query.FindingQuestion{Kinds: in.Kind, Severities: in.Severity, Devices: in.Device, Limit: maxRecords + 1}
	q.From, q.To = at.span()
	for _, name := range in.Location {
		ids, ok := n.placeIDs[name]
		if !ok {
			return q, nil, wrong("location", name, "no such location: /api/v1/fabric lists them")
		}
		q.Locations = append(q.Locations, ids...)
	}
	return q, n, nil
}

func (a *API) findings(ctx context.Context, _ *table.State, in *findingsInput) (*answer, error) {
	at, err := pinAt(in.Cursor, questionHash(in.FindingInput))
	if err != nil {
		return nil, err
	}
	q, n, err := a.findingQuestion(ctx, &in.FindingInput, &at)
	if err != nil {
		return nil, err
	}
	p, err := paged(a, at, in.Limit, maxRecords, func() ([]model.Finding, error) {
		rows, err := a.Reader.Findings(ctx, q)
		list := make([]model.Finding, len(rows))
		for i := range rows {
			list[i] = n.finding(&rows[i])
		}
		return list, err
	})
	if err != nil {
		return nil, err
	}
	return of(nil, &model.Findings{
		Source: "store", From: q.From, To: q.To, AsOf: p.asOf, Total: p.total, Truncated: p.truncated, Next: p.next, Values: p.rows,
	})
}

func (n *names) finding(r *query.FindingRow) model.Finding {
	f := model.Finding{
		Kind: r.Kind, ID: fmt.Sprintf("%016x", r.ID), Severity: r.Severity, First: r.First, Last: r.Last, Count: r.Count,
		Device: r.Device, Port: r.Port, Evidence: r.Evidence, Packets: r.Packets,
	}
	if r.Location != aggregate.NoLocation {
		f.Location = n.locationName(r.Location)
	}
	return f
}
