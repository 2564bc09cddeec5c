package main

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/ingest/credential"
)

// apiConfig says who may ask the query API and the page, and how much. What its files hold is
// read again when they change.
type apiConfig struct {
	TLS tlsConfig `yaml:"tls,omitempty"` // ca: of the askers' certificates
	// Clients is a file of lines "NAME: ROLE SHA256 [EXPIRES]", of tokens, and
	// "NAME: ROLE certificate". Roles are read and admin.
	Clients string `yaml:"clients,omitempty"`
	// Anonymous is the role of who shows no credential: read, admin or none. Default read
	// where nobody has a credential, else none.
	Anonymous choice[anonymousRoles] `yaml:"anonymous,omitempty"`
	Origins   []string               `yaml:"origins,omitempty,flow"` // web sites whose scripts may ask
	Limits    apiLimitsConfig        `yaml:"limits,omitempty"`
}

// apiLimitsConfig bounds each asker; see access.Limits.
type apiLimitsConfig struct {
	Requests   quantity `yaml:"requests,omitempty"`   // a second
	Concurrent quantity `yaml:"concurrent,omitempty"` // answered at a time
	Watchers   quantity `yaml:"watchers,omitempty"`   // that wait or watch at a time
	StoreTime  interval `yaml:"store_time,omitempty"` // of the store's work, in a minute
	Askers     quantity `yaml:"askers,omitempty"`     // that are remembered
}

// defaultAPIConfig is what an empty section means.
func defaultAPIConfig() apiConfig {
	return apiConfig{Limits: apiLimitsConfig{
		Requests: quantity{n: access.DefaultRequests}, Concurrent: quantity{n: access.DefaultConcurrent},
		Watchers: quantity{n: access.DefaultWatchers}, StoreTime: intervalOf(access.DefaultStoreTime), Askers: quantity{n: access.DefaultAskers},
	}}
}

// merge returns c with the defaults for what it leaves out.
func (c apiConfig) merge() apiConfig {
	d := defaultAPIConfig().Limits
	for _, l := range []struct{ to, fallback *quantity }{
		{&c.Limits.Requests, &d.Requests}, {&c.Limits.Concurrent, &d.Concurrent}, {&c.Limits.Watchers, &d.Watchers}, {&c.Limits.Askers, &d.Askers},
	} {
		if l.to.n == 0 {
			*l.to = *l.fallback
		}
	}
	if c.Limits.StoreTime.d == 0 {
		c.Limits.StoreTime = d.StoreTime
	}
	return c
}

// roleNone is the role of nobody, in the configuration.
const roleNone = "none"

var roles = []string{string(access.Read), string(access.Admin)}

type anonymousRoles struct{}

func (anonymousRoles) words() []string { return append(slices.Clone(roles), roleNone) }

func (c *apiConfig) check() error {
	if c.TLS.CA != "" && c.Clients == "" {
		return errors.New("api: tls: ca: certificates open nothing without a file of clients that lists their names and roles")
	}
	if _, err := access.New(access.Config{Settings: c.settings()}); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	if c.Anonymous.text == roleNone && c.Clients == "" {
		return errors.New("api: anonymous: none lets nobody in without a file of clients")
	}
	if t := c.Limits.StoreTime; t.set && t.d == 0 {
		return errors.New("api: limits: store_time: 0s: expected 1ms to 1h, in a minute")
	}
	gate := c.gate()
	if err := gate.Check(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return nil
}

func (c *apiConfig) settings() access.Settings {
	l := &c.Limits
	return access.Settings{Origins: c.Origins, Limits: access.Limits{
		Requests: float64(l.Requests.n), Concurrent: l.Concurrent.int(), Watchers: l.Watchers.int(), StoreTime: l.StoreTime.d, Askers: l.Askers.int(),
	}}
}

// int is the quantity, or more than any bound where it has no room.
func (q quantity) int() int { return int(min(q.n, 1<<31)) }

// files are those that are read again later.
func (c *apiConfig) files() []string {
	return []string{c.Clients, c.TLS.Cert, c.TLS.Key, c.TLS.CA}
}

func (c *apiConfig) gate() credential.Config {
	g := credential.Config{TLS: c.TLS.files(), Clients: c.Clients, Roles: roles}
	role := c.Anonymous.text
	if role == "" && c.Clients == "" {
		role = string(access.Read)
	}
	if role != "" && role != roleNone {
		g.Anonymous = credential.Peer{Name: "anonymous", Role: role}
	}
	return g
}

// checkListen refuses an address that others can reach, where that is not safe.
func (c *apiConfig) checkListen(flag, address string, exposed bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usageError{fmt.Errorf("%s %q: expected HOST:PORT such as 127.0.0.1:8080", flag, address)}
	}
	gate := c.gate()
	if why := gate.Exposed(); why != nil && !exposed && !credential.IsLoopback(host) {
		return usageError{fmt.Errorf("%s %q: is reachable from other machines, and there is %w: give the section api of --config a certificate and clients, or use 127.0.0.1 and a tunnel", flag, address, why)}
	}
	return nil
}
