package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/remote"
)

// TLS names PEM files. They are reloaded when they change.
type TLS struct {
	Cert string `yaml:"cert,omitempty" unit:"file" help:"file of this end's certificate (PEM); this file, key and ca are read again when they change"`
	Key  string `yaml:"key,omitempty" unit:"file" help:"file of the private key of this certificate (PEM)"`
	CA   string `yaml:"ca,omitempty" unit:"file" help:"file of the authorities that sign the certificates of the other end (PEM)"`
}

// Files returns the files for package edge.
func (c TLS) Files() edge.TLSFiles {
	return edge.TLSFiles{Cert: c.Cert, Key: c.Key, CA: c.CA}
}

// Credentials authenticate this end of a connection to collectors.
type Credentials struct {
	TLS       TLS    `yaml:"tls,omitempty" help:"ca is the authority of the collectors' certificates; cert needs clientAuth if it has extendedKeyUsage"`
	TokenFile string `yaml:"token_file,omitempty" unit:"file" help:"file with the bearer token of this host, which is read again when it changes"`
}

// Files returns the files that are reloaded later.
func (c *Credentials) Files() []string {
	return []string{c.TokenFile, c.TLS.Cert, c.TLS.Key, c.TLS.CA}
}

// Peers are the other collectors of a fleet, which receive this collector's windows.
type Peers struct {
	Collectors  []string `yaml:"collectors,omitempty,flow" unit:"URL" help:"URLs of the other collectors of a fleet, at most 64: each gets the windows of 1s of this one, so that any of them can answer for all"`
	Credentials `yaml:",inline"`
}

// Sharing returns the settings for package remote.
func (c *Peers) Sharing() remote.SharingConfig {
	return remote.SharingConfig{Peers: c.Collectors, TLS: c.TLS.Files(), TokenFile: c.TokenFile}
}

func (c *Peers) check() error {
	sharing := c.Sharing()
	if err := sharing.Check(); err != nil {
		return fmt.Errorf("collect: peers: %w", err)
	}
	return nil
}

// Ingest configures which exporters may send, how they authenticate, and their limits.
type Ingest struct {
	Listen    Address        `yaml:"listen,omitempty" help:"address that exporters send to, such as 127.0.0.1:4319; needs tokens, an authority or anonymous in the section collect.ingest, and beyond loopback TLS too"`
	TLS       TLS            `yaml:"tls,omitempty" help:"ca is the authority of the certificates of exporters and peers; the name of an exporter or a peer is the first URI in its certificate, else the first DNS name, else the common name; cert needs serverAuth if it has extendedKeyUsage"`
	Tokens    string         `yaml:"tokens,omitempty" unit:"file" help:"file of lines NAME: SHA256-OF-THE-TOKEN [EXPIRES], which is read again when it changes. A name may have several lines, such as an old token and a new one"`
	Anonymous string         `yaml:"anonymous,omitempty" help:"name of exporters without a credential: for loopback"`
	Exporters []Exporter     `yaml:"exporters,omitempty" default:"all; required with tls.ca" help:"exporters that may send; the first entry that matches a name applies, and limits that it lacks are those of collect.ingest.limits. Exporters with a token or a full name here are expected: an alert reports those that never send"`
	Limits    ExporterLimits `yaml:"limits,omitempty" help:"limits of each exporter that has none of its own"`
	Peers     []string       `yaml:"peers,omitempty,flow" unit:"name" help:"names of other collectors, as in their certificates or the file of tokens: --api-listen shows the windows that they share, and the store never gets them. They may not export; each may send as much as 20 exporters"`
}

// Exporter is an exporter, or a pattern of exporters, that may send.
type Exporter struct {
	Name   Text `yaml:"name" help:"name, or a pattern such as rack1-*; required"`
	Limits `yaml:",inline"`
}

// ExporterLimits bounds each exporter, and their number.
type ExporterLimits struct {
	Limits    `yaml:",inline"`
	Exporters Quantity `yaml:"exporters,omitempty" default:"4096" help:"maximum number of exporters; a further one takes the place of an idle one, or else is refused"`
}

// Limits bounds one exporter; see remote.Limits for the defaults.
type Limits struct {
	Requests    Quantity `yaml:"requests,omitempty" default:"50" help:"requests per second"`
	Bytes       Bytes    `yaml:"bytes,omitempty" range:"205KiB.." default:"8MiB" help:"bytes per second"`
	Rows        Quantity `yaml:"rows,omitempty" range:"6554.." default:"50000" help:"rows per second. After a pause, an exporter may use up to 10 s of its requests, bytes and rows at once"`
	WindowRows  Quantity `yaml:"window_rows,omitempty" default:"20000" help:"rows of a stream's window that keep their own keys; further rows are added up in overflow rows"`
	WindowFlows Quantity `yaml:"window_flows,omitempty" default:"10000" help:"the same for rows of flows"`
	Streams     Quantity `yaml:"streams,omitempty" default:"64" help:"streams: one for each ring of each interface, and each that a transport pushes. A stream that has ended, or was silent for 5 minutes, makes room for a new one"`
}

func (l *Limits) limits() remote.Limits {
	return remote.Limits{
		RequestRate: float64(l.Requests), ByteRate: float64(l.Bytes), RowRate: float64(l.Rows),
		MaxWindowRows: l.WindowRows.Int(), MaxWindowFlows: l.WindowFlows.Int(), MaxStreams: l.Streams.Int(),
	}
}

// Auth returns how exporters authenticate.
func (c *Ingest) Auth() edge.Auth {
	return edge.Auth{TLS: c.TLS.Files(), Clients: c.Tokens, Anonymous: edge.Peer{Name: c.Anonymous}}
}

// Admission returns which exporters may send, and their limits.
func (c *Ingest) Admission() remote.Admission {
	a := remote.Admission{Limits: c.Limits.limits(), Peers: c.Peers}
	a.Limits.MaxExporters = c.Limits.Exporters.Int()
	for i := range c.Exporters {
		a.Permits = append(a.Permits, remote.Permit{Name: string(c.Exporters[i].Name), Limits: c.Exporters[i].limits()})
	}
	return a
}

func (c *Ingest) check() error {
	fail := func(err error) error { return fmt.Errorf("collect: ingest: %w", err) }
	a, auth := c.Admission(), c.Auth()
	if err := a.Check(&auth); err != nil {
		return fail(err)
	}
	if err := c.TLS.Files().Check(); err != nil {
		return fail(fmt.Errorf("tls: %w", err))
	}
	if c.Listen == "" {
		return nil
	}
	if err := auth.Check(); err != nil {
		return fail(err)
	}
	return nil
}

// CheckListen rejects an address that other machines can reach without protection.
func (c *Ingest) CheckListen() error {
	if c.Listen == "" || edge.IsLoopback(c.Listen.host()) {
		return nil
	}
	auth := c.Auth()
	if why := auth.Exposed(); why != nil {
		return fmt.Errorf("collect: ingest: listen %q: %w, and %w", c.Listen, edge.ErrExposed, why)
	}
	return nil
}

// API configures access to the query API and the page, and the limits of clients.
type API struct {
	TLS        TLS                    `yaml:"tls,omitempty" help:"ca is the authority of the clients' certificates"`
	Clients    string                 `yaml:"clients,omitempty" unit:"file" help:"file of lines NAME: read|admin SHA256-OF-THE-TOKEN [EXPIRES], and NAME: read|admin certificate; read again when it changes"`
	Anonymous  Choice[anonymousRoles] `yaml:"anonymous,omitempty" default:"read where nobody has a credential, else none" help:"role of clients without a credential"`
	Origins    []string               `yaml:"origins,omitempty,flow" unit:"URL" help:"web sites whose scripts may ask, such as https://te.example"`
	Limits     APILimits              `yaml:"limits" help:"limits of each client"`
	AnswerTime Duration               `yaml:"answer_time" range:"1s..1m" help:"time that one answer may take; store.limits.time bounds each of its queries of the store. Exported tables may take 15 s longer"`
}

// APILimits bounds each client; see edge.Limits.
type APILimits struct {
	Requests   Quantity `yaml:"requests" range:"1..1000000" help:"requests per second on average; up to twice as many at once after a pause"`
	Concurrent Quantity `yaml:"concurrent" range:"1..1048576" help:"requests that are answered at the same time"`
	Watchers   Quantity `yaml:"watchers" range:"1..1048576" help:"requests that wait or watch at the same time"`
	StoreTime  Duration `yaml:"store_time" range:"1ms..1h" help:"time of queries in the store, per minute"`
	Clients    Quantity `yaml:"clients" range:"1..1048576" help:"clients that are remembered"`
}

func defaultAPI() API {
	return API{AnswerTime: Duration(api.DefaultTimeout), Limits: APILimits{
		Requests: edge.DefaultRequests, Concurrent: edge.DefaultConcurrent, Watchers: edge.DefaultWatchers,
		StoreTime: Duration(edge.DefaultStoreTime), Clients: edge.DefaultClients,
	}}
}

// roleNone is the configured role that admits nobody.
const roleNone = "none"

var roles = []string{string(edge.Read), string(edge.Admin)}

type anonymousRoles struct{}

func (anonymousRoles) words() []string { return append(slices.Clone(roles), roleNone) }

func (c *API) check() error {
	if c.TLS.CA != "" && c.Clients == "" {
		return errors.New("api: tls: ca: certificates need a file of clients that lists their names and roles")
	}
	settings := c.Settings()
	if err := settings.Check(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	if c.Anonymous == roleNone && c.Clients == "" {
		return errors.New("api: anonymous: none needs a file of clients: without one nobody could ask")
	}
	auth := c.Auth()
	if err := auth.Check(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return nil
}

// Settings returns the limits of clients and the permitted web sites.
func (c *API) Settings() edge.Settings {
	l := &c.Limits
	return edge.Settings{Origins: c.Origins, Limits: edge.Limits{
		Requests: float64(l.Requests), Concurrent: l.Concurrent.Int(), Watchers: l.Watchers.Int(),
		StoreTime: time.Duration(l.StoreTime), Clients: l.Clients.Int(),
	}}
}

// Fixed returns the section without the keys of Settings, which a reload changes.
func (c *API) Fixed() API {
	fixed := *c
	fixed.Origins, fixed.Limits = nil, APILimits{}
	return fixed
}

// Files returns the files that are reloaded later.
func (c *API) Files() []string { return []string{c.Clients, c.TLS.Cert, c.TLS.Key, c.TLS.CA} }

// Auth returns how clients authenticate.
func (c *API) Auth() edge.Auth {
	a := edge.Auth{TLS: c.TLS.Files(), Clients: c.Clients}
	role := string(c.Anonymous)
	if role == "" && c.Clients == "" {
		role = string(edge.Read)
	}
	if role != "" && role != roleNone {
		a.Anonymous = edge.Peer{Name: "anonymous", Role: edge.Role(role)}
	}
	return a
}

// CheckListen rejects an address that other machines can reach without protection.
func (c *API) CheckListen(a Address) error {
	auth := c.Auth()
	if why := auth.Exposed(); why != nil && !edge.IsLoopback(a.host()) {
		return fmt.Errorf("%q: %w, and %w: give the section api of --config a certificate and clients, or use 127.0.0.1 and a tunnel", a, edge.ErrExposed, why)
	}
	return nil
}
