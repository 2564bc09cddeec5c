package remote

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// reviewEvery is the interval at which the directory is asked whether disputed names were
	// unpinned.
	reviewEvery = 5 * time.Second
	// maxDisputes is the maximum number of remembered disputes, maxExporterDisputes that of one
	// exporter. Further ones evict older ones, which return when the exporter describes the
	// name again.
	maxDisputes         = 1024
	maxExporterDisputes = maxDisputes / 8
	// maxReportedDisputes is the maximum number of findings about disputes per request.
	maxReportedDisputes = 64
	// contestedName is the kind of the finding; see package finding.
	contestedName = "contested-name"
)

// Finding is a finding of the collector about an exporter, attached to one of its runs.
type Finding struct {
	aggregate.Source
	*wire.Finding
}

type disputeKey struct {
	nameKey
	exporter string
}

// dispute is a name whose description by an exporter differs from the pinned one.
type dispute struct {
	refusal
	own             bool             // the collector's fabric file defines it
	of              aggregate.Source // under which its finding is written; zero before the first time
	first, last     int64
	count, reported uint64
}

// dispute counts and remembers an exporter's refused descriptions, for a finding and for the
// time when a name is unpinned.
func (s *Server) dispute(e *exporter, refused []refusal) {
	if len(refused) == 0 {
		return
	}
	e.counts.refused(ReasonContested, uint64(len(refused)-1))
	s.refuse(e, ReasonContested, slog.Int("names", len(refused)), slog.String("first", edge.Truncated(titleOf(&refused[0].Name))),
		slog.String("held_by", holderOf(refused[0].holder)),
		slog.String("hint", "rows are stored under the earlier description; csigscope schema unpin lets the next description replace it"))
	r, now := s.names, s.now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range refused {
		k := disputeKey{nameKeyOf(&one.Name), e.name}
		if r.disputes.get(k) == nil {
			r.disputes.put(e.name, k, &dispute{first: now})
		}
		d := *r.disputes.get(k)
		_, d.own = r.own[k.nameKey]
		d.refusal, d.last = one, now
		d.count++
	}
}

// contested handles a refusal by the directory: the name is held under another description.
func (s *Server) contested(refused, held fabric.Name) {
	s.names.mu.Lock()
	s.names.hold(refused.Exporter, &held)
	s.names.mu.Unlock()
	s.mu.Lock()
	e := s.exporters[refused.Exporter]
	s.mu.Unlock()
	if e != nil {
		s.dispute(e, []refusal{{refused, held.Exporter}})
	}
}

// disputed returns new findings about disputes of an exporter, and a function to call once they
// are written. The finding of a dispute keeps the source under which it was first written, since
// its row with the new count has to replace the earlier one: rows of other sources add up.
func (r *registry) disputed(exporter string, of aggregate.Source) (list []Finding, reported func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[*dispute]uint64{}
	for _, p := range r.disputes.of(exporter) {
		if d := *p; d.count != d.reported && len(list) < maxReportedDisputes {
			counts[d], d.of = d.count, cmp.Or(d.of, of)
			list = append(list, Finding{d.of, d.finding()})
		}
	}
	return list, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for d, n := range counts {
			d.reported = max(d.reported, n)
		}
	}
}

func (d *dispute) finding() *wire.Finding {
	f := &wire.Finding{Kind: contestedName, Id: nameKeyOf(&d.Name).id, Severity: "warning", FromNs: d.first, ToNs: d.last, Count: d.count}
	says, advice := "", "csigscope schema unpin lets the next description replace it"
	if g := d.Group; g != nil {
		says = fmt.Sprintf("level %.64q, parent %.64q", g.Level, g.Parent)
	} else {
		l := d.Location
		f.Device, f.Location = l.Device, uint64(l.ID)
		says = fmt.Sprintf("%d kbit/s, device %.64q, stage %.64q, orientation %.64q, %d ports", l.Capacity, l.Device, l.Stage, l.Orientation, l.CandidateCount)
	}
	holder := holderOf(d.holder)
	if d.own {
		holder, advice = "the collector's fabric file", "correct one of the two files"
	}
	f.Evidence = fmt.Sprintf("%s: exporter %q says %s; the description of %s differs and stays in force: %s", titleOf(&d.Name), d.Exporter, says, holder, advice)
	return f
}

func titleOf(n *fabric.Name) string {
	if n.Group != nil {
		return "group " + n.Group.Name
	}
	return n.Location.Kind + " " + n.Location.Name
}

func holderOf(exporter string) string {
	if exporter == "" {
		return "a fabric file"
	}
	return fmt.Sprintf("exporter %q, which came first", exporter)
}

// review accepts refused descriptions once their names are unpinned, until ctx ends. Of several
// descriptions, the one refused first is accepted.
func (s *Server) review(ctx context.Context) {
	for retry.Sleep(ctx, s.reviewEvery) {
		// If the store is down, this is retried.
		if keys, names := s.names.waiting(); len(names) > 0 && s.names.review(ctx, names) == nil {
			s.names.resolveTaken(keys, names, s.logger)
		}
	}
}

// review queries the current descriptions of names, and pins the first refused description of
// each unpinned name. A name that is not stored yet waits until it is.
func (r *registry) review(ctx context.Context, names []fabric.Name) error {
	var groups []aggregate.GroupID
	var locations []aggregate.LocationID
	for i := range names {
		if n := &names[i]; n.Group != nil {
			groups = append(groups, n.Group.ID)
		} else {
			locations = append(locations, n.Location.ID)
		}
	}
	stored, err := r.to.Names(ctx, groups, locations)
	if err != nil {
		return err
	}
	held, loose := map[nameKey]*fabric.Name{}, map[nameKey]bool{}
	for i := range stored {
		n := &stored[i]
		if loose[nameKeyOf(n)] = !n.Pinned; n.Pinned {
			held[nameKeyOf(n)] = n
		}
	}
	var taken []fabric.Name
	for _, n := range names {
		if loose[nameKeyOf(&n)] {
			loose[nameKeyOf(&n)] = false
			taken = append(taken, n)
		}
	}
	if len(taken) > 0 {
		if err := r.to.PinNames(ctx, taken); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range names {
		if n := held[nameKeyOf(&names[i])]; n != nil {
			r.hold(names[i].Exporter, n)
		}
	}
	for i := range taken {
		r.hold(taken[i].Exporter, &taken[i])
	}
	return nil
}

// waiting returns the names to pin once they are unpinned.
func (r *registry) waiting() (keys []disputeKey, names []fabric.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.disputes.entries {
		if _, own := r.own[k.nameKey]; !own {
			keys = append(keys, k)
		}
	}
	of := func(k disputeKey) *dispute { return r.disputes.entries[k].value }
	slices.SortFunc(keys, func(a, b disputeKey) int {
		return cmp.Or(cmp.Compare(of(a).first, of(b).first), cmp.Compare(a.exporter, b.exporter), cmp.Compare(a.id, b.id))
	})
	for _, k := range keys {
		names = append(names, of(k).Name)
	}
	return keys, names
}

// resolveTaken ends disputes about names whose description is now the exporter's.
func (r *registry) resolveTaken(keys []disputeKey, names []fabric.Name, logger *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, k := range keys {
		if have := r.names.get(k.nameKey); have != nil && have.content == contentOf(&names[i]) {
			r.disputes.remove(k)
			logger.Info("a refused description is now in force", slog.String("exporter", k.exporter), slog.String("name", titleOf(&names[i])))
		}
	}
}
