package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/edge"
)

// Permit admits exporters by name.
type Permit struct {
	// Name is an exporter's name, or a pattern in which * matches any text: rack1-*.
	Name string
	// Limits apply to each exporter of that name. Zero fields, and the limits for all exporters
	// together, have the collector's values.
	Limits Limits
}

// Admission says which clients may export, and their limits.
type Admission struct {
	// Permits lists the exporters; the first match for a name counts. With a list, no other
	// client may export, whatever its credential. Without one, every name in the token file may
	// export; an authority in TLS.CA requires a list, since it may sign certificates for other
	// purposes.
	Permits []Permit
	Limits  Limits // of each exporter without its own, and of all together
	// Peers names the collectors that may share their windows with this one. They may not
	// export, whatever their credential; a name belongs to an exporter or to a peer.
	Peers []string
}

// maxPeers is the maximum number of other collectors in a fleet.
const maxPeers = 64

// Check validates the settings.
func (a *Admission) Check(auth *edge.Auth) error {
	_, err := newAdmitted(a, auth)
	return err
}

// admitted is an Admission in force. It alone decides whether a client may export, and under
// which limits. It is read-only.
type admitted struct {
	everybody *Limits // nil if there is a list
	limits    []*Limits
	exact     map[string]int // into limits
	patterns  []pattern
	peers     []string
	peer      Limits   // of each peer
	named     []string // exact names, in list order
}

// pattern is a name with wildcards: its parts must occur in this order, with any text in
// between.
type pattern struct {
	parts []string
	at    int // into limits
}

func newAdmitted(a *Admission, auth *edge.Auth) (*admitted, error) {
	all, err := a.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	in := &admitted{exact: map[string]int{}, peers: a.Peers, peer: all.ofPeer()}
	if err := in.checkPeers(a, auth); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	if len(a.Permits) == 0 {
		if auth.TLS.CA != "" {
			return nil, errors.New(`tls: ca: any certificate of this authority could export: expected a list of exporters such as [{name: host1}, {name: "rack1-*"}], or [{name: "*"}] for all of them`)
		}
		in.everybody = &all
		return in, nil
	}
	for i := range a.Permits {
		p := &a.Permits[i]
		if err := edge.CheckName(p.Name); err != nil {
			return nil, fmt.Errorf("exporters: %w", err)
		}
		own, err := all.over(&p.Limits).withDefaults()
		if err != nil {
			return nil, fmt.Errorf("exporters: %s: %w", p.Name, err)
		}
		in.limits = append(in.limits, &own)
		if strings.Contains(p.Name, "*") {
			in.patterns = append(in.patterns, pattern{strings.Split(p.Name, "*"), i})
			continue
		}
		if _, twice := in.exact[p.Name]; twice {
			return nil, fmt.Errorf("exporters: %s is listed twice", p.Name)
		}
		in.exact[p.Name] = i
		in.named = append(in.named, p.Name)
	}
	if auth.Anonymous.Name != "" && in.of(auth.Anonymous.Name) == nil {
		return nil, fmt.Errorf("anonymous: %s is not among the exporters: list it there", auth.Anonymous.Name)
	}
	return in, nil
}

// checkPeers rejects peers that could be mistaken for exporters.
func (in *admitted) checkPeers(a *Admission, auth *edge.Auth) error {
	if len(in.peers) > maxPeers {
		return fmt.Errorf("%d of them: expected at most %d", len(in.peers), maxPeers)
	}
	for i, name := range in.peers {
		switch {
		case edge.CheckName(name) != nil:
			return edge.CheckName(name)
		case slices.Contains(in.peers[:i], name):
			return fmt.Errorf("%s is listed twice", name)
		case name == auth.Anonymous.Name:
			return fmt.Errorf("%s is the name of clients without a credential: give the peer a token or a certificate", name)
		case slices.ContainsFunc(a.Permits, func(p Permit) bool { return p.Name == name }):
			return fmt.Errorf("%s is among the exporters too: give the collector a name of its own", name)
		}
	}
	return nil
}

// lets reports whether a client is admitted, as an exporter or as a peer.
func (in *admitted) lets(name string) bool {
	return slices.Contains(in.peers, name) || in.of(name) != nil
}

// of returns the limits of an exporter, nil if it may not export.
func (in *admitted) of(name string) *Limits {
	if slices.Contains(in.peers, name) {
		return nil
	}
	if in.everybody != nil {
		return in.everybody
	}
	first, ok := in.exact[name]
	if !ok {
		first = len(in.limits)
	}
	for _, p := range in.patterns {
		if p.at > first {
			break
		}
		if p.fits(name) {
			first = p.at
			break
		}
	}
	if first == len(in.limits) {
		return nil
	}
	return in.limits[first]
}

func (p *pattern) fits(name string) bool {
	last := len(p.parts) - 1
	name, ok := strings.CutPrefix(name, p.parts[0])
	if !ok {
		return false
	}
	for _, part := range p.parts[1:last] {
		if _, name, ok = strings.Cut(name, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(name, p.parts[last])
}

// Use applies another admission at once: requests and connections of removed exporters end
// within a few seconds. Its limits for all exporters together are ignored; those of the start
// remain. Batches of observations that arrive from now on are aggregated as configured; nil: they
// are refused.
func (s *Server) Use(a Admission, observations *window.Config) error {
	use, err := s.Prepare(a, observations)
	if err != nil {
		return err
	}
	use()
	return nil
}

// Prepare validates what Use would apply, under the Auth of the start, and returns the function that
// applies it.
func (s *Server) Prepare(a Admission, observations *window.Config) (use func(), err error) {
	in, err := newAdmitted(&a, &s.cfg.Auth)
	if err != nil {
		return nil, fmt.Errorf("configure collector: %w", err)
	}
	o, err := newObserver(observations)
	if err != nil {
		return nil, fmt.Errorf("configure collector: observations: %w", err)
	}
	return func() {
		s.admitted.Store(in)
		s.observer.Store(o)
	}, nil
}
