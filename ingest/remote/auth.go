package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
)

// TLSFiles names the PEM files of one end of a connection.
type TLSFiles = credential.TLSFiles

// Auth says how exporters prove who they are: by certificates of the authority in
// TLS.CA, by bearer tokens, or by either. A name is the same exporter in both.
type Auth struct {
	// TLS is the collector's certificate, and the authority of the exporters'. Without
	// a certificate the collector speaks in the clear.
	TLS TLSFiles
	// Tokens is a file of lines "NAME: SHA256 [EXPIRES]", read again when it changes.
	Tokens string
	// Anonymous takes everybody in as this exporter who shows no credential. It is meant
	// for loopback and tests; empty: nobody.
	Anonymous string
}

func (a *Auth) gate() credential.Config {
	return credential.Config{TLS: a.TLS, Clients: a.Tokens, Anonymous: credential.Peer{Name: a.Anonymous}}
}

// Check says what is wrong with it. It reads no file.
func (a *Auth) Check() error {
	g := a.gate()
	return g.Check()
}

// Exposed tells whether a listener beyond loopback is safe: everybody is known, and
// nothing can be read or changed on the way.
func (a *Auth) Exposed() error {
	g := a.gate()
	return g.Exposed()
}

// newGate tells exporters from each other.
func newGate(a *Auth, allows func(string) bool, now func() time.Time, logger *slog.Logger, refuse func(Reason, ...slog.Attr)) (*credential.Gate, error) {
	g := a.gate()
	g.Allows, g.Now, g.Logger = allows, now, logger
	g.Refuse = func(r credential.Reason, attrs ...slog.Attr) { refuse(Reason(r), attrs...) }
	return credential.NewGate(g)
}

// checkListen refuses addresses beyond loopback where that is not safe.
func (a *Auth) checkListen(address string, anyway bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address to listen on: %w", err)
	}
	if credential.IsLoopback(host) {
		return nil
	}
	if err := a.Exposed(); err != nil && !anyway {
		return fmt.Errorf("listen on %s: beyond loopback, and %w", address, err)
	}
	return nil
}

// Permit lets exporters in by name.
type Permit struct {
	// Name is an exporter's name, or a pattern in which * stands for any text: rack1-*.
	Name string
	// Limits are those of each exporter of that name. Those that are 0, and those that hold for
	// all exporters together, are the collector's.
	Limits Limits
}

// Admission says who may export, and how much each exporter may do.
type Admission struct {
	// Permits is the list of exporters; of several that fit a name the first one counts. With
	// a list, nobody else exports, whoever vouches for the name. Without one, everybody may
	// whom the token file names; an authority in TLS.CA needs a list, since it may sign
	// certificates that are meant for something else.
	Permits []Permit
	Limits  Limits // of each exporter that has no other ones, and of all together
}

// Check finds mistakes.
func (a *Admission) Check(auth *Auth) error {
	_, err := newAdmitted(a, auth)
	return err
}

// admitted is an Admission in force: the one place that decides whether an exporter may hand
// in, and under which limits. It is read-only.
type admitted struct {
	everybody *Limits // nil where there is a list
	limits    []*Limits
	exact     map[string]int // into limits
	patterns  []pattern
	named     []string // exact names, in the order of the list
}

// pattern is what has to stand between, before and after any text.
type pattern struct {
	parts []string
	at    int // into limits
}

func newAdmitted(a *Admission, auth *Auth) (*admitted, error) {
	all, err := a.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	in := &admitted{exact: map[string]int{}}
	if len(a.Permits) == 0 {
		if auth.TLS.CA != "" {
			return nil, errors.New(`tls: ca: any certificate of this authority could export: expected a list of exporters such as [{name: host1}, {name: "rack1-*"}], or [{name: "*"}] for all of them`)
		}
		in.everybody = &all
		return in, nil
	}
	for i := range a.Permits {
		p := &a.Permits[i]
		if err := credential.CheckName(p.Name); err != nil {
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
	if auth.Anonymous != "" && in.of(auth.Anonymous) == nil {
		return nil, fmt.Errorf("anonymous: %s is not among the exporters: list it there", auth.Anonymous)
	}
	return in, nil
}

// of returns the limits of an exporter, nil for one that may not hand in.
func (in *admitted) of(name string) *Limits {
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

// Use puts another admission in force, at once: requests and connections of exporters that
// are out end within a few seconds. Of its Limits, those that hold for all exporters together
// stay as they were at the start.
func (s *Server) Use(a Admission) error {
	in, err := newAdmitted(&a, &s.cfg.Auth)
	if err != nil {
		return fmt.Errorf("configure collector: %w", err)
	}
	s.admitted.Store(in)
	return nil
}
