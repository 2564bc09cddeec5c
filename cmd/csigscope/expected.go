package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/retry"
)

const (
	// expectEvery is the interval at which the live windows get the list of expected producers; they
	// get it within a second when a silent exporter sends its first request, and after a reload.
	expectEvery = time.Minute
	// expectAgain is the pause after the store did not answer.
	expectAgain = 5 * time.Second
	// heardWithin is the time after its last request after which an exporter counts as gone: it
	// sends a hello every 15 s.
	heardWithin = 45 * time.Second
)

// expect updates the producers that live windows expect, until ctx ends. While the store is
// down, its last list remains in use.
func (c *collector) expect(ctx context.Context) error {
	var known []store.Producer
	var failing retry.LogThrottle
	for {
		using := c.using.Load()
		asked, cancel := context.WithTimeout(ctx, expectEvery)
		list, err := c.db.store.Producers(asked, time.Now().Add(-store.ExpectFor))
		cancel()
		pause := expectEvery
		switch {
		case err == nil:
			known = list
		case ctx.Err() == nil:
			pause = expectAgain
			failing.Warn(c.logger, time.Now(), "producers of the last day cannot be read yet: completeness counts only known producers", slog.String("error", err.Error()))
		}
		silent := c.silentExporters()
		expected, err := c.expected(known, silent)
		if err != nil {
			return err
		}
		var forgotten []uint64
		for _, p := range known {
			if p.Forgotten {
				forgotten = append(forgotten, p.ID)
			}
		}
		c.feed.memory.Expect(expected, forgotten)
		changed := func() bool { return c.using.Load() != using || !slices.Equal(c.silentExporters(), silent) }
		if !sleepUntil(ctx, pause, changed) {
			return nil
		}
	}
}

// sleepUntil sleeps for the pause, but at most a second longer than until done. It returns false
// if ctx ends first.
func sleepUntil(ctx context.Context, pause time.Duration, done func() bool) bool {
	for ; pause > 0; pause -= time.Second {
		if !retry.Sleep(ctx, min(pause, time.Second)) {
			return false
		}
		if done() {
			break
		}
	}
	return true
}

// silentExporters returns the names of exporters that may send but have sent no request yet.
func (c *collector) silentExporters() (silent []string) {
	if c.server == nil {
		return nil
	}
	for _, e := range c.server.Stats().Exporters {
		if e.Requests == 0 {
			silent = append(silent, e.Name)
		}
	}
	return silent
}

// expected returns the producers of the configuration, the fabric file and the store, and silent
// exporters.
func (c *collector) expected(known []store.Producer, silent []string) ([]table.Producer, error) {
	instance, err := c.using.Load().Config.Collect.Name()
	if err != nil {
		return nil, err
	}
	var taps []table.Producer
	for _, t := range c.agent.Taps() {
		if t.Mirror() == nil { // sessions come and go by themselves
			taps = append(taps, table.Producer{ID: local.Producer(instance, t.Name()), Name: t.Name()})
		}
	}
	var planned []string
	for _, t := range c.using.Load().FileTaps {
		planned = append(planned, t.Name)
	}
	return expectedProducers(known, taps, silent, planned), nil
}

// expectedProducers returns the taps of this host, the exporters without requests, the taps of
// the fabric file, and the producers in the store, without forgotten ones. An exporter or a tap
// of the fabric file without a producer yet counts as one.
func expectedProducers(known []store.Producer, taps []table.Producer, silent, planned []string) (list []table.Producer) {
	forgotten := make(map[uint64]bool)
	met := make(map[string]bool) // exporters, and taps of any host
	for _, p := range known {
		forgotten[p.ID] = p.Forgotten
		for _, name := range configuredAs(p.Name) {
			met[name] = true
		}
	}
	for _, p := range taps {
		if met[p.Name] = true; !forgotten[p.ID] {
			list = append(list, p)
		}
	}
	for _, name := range slices.Concat(silent, planned) {
		if !met[name] {
			met[name] = true
			list = append(list, table.Producer{ID: remote.Producer(name, ""), Name: name})
		}
	}
	for _, p := range known {
		if !p.Forgotten && !slices.ContainsFunc(taps, func(t table.Producer) bool { return t.ID == p.ID }) {
			list = append(list, table.Producer{ID: p.ID, Name: p.Name})
		}
	}
	return list
}

// configuredAs returns the names by which a configuration may know a producer: its own, that of its
// exporter, and that of its tap, such as eth1 of host1/eth1/0 (credential, interface, ring). A
// credential may be followed by an instance.
func configuredAs(producer string) (names []string) {
	names = exportersOf(producer)
	for rest, more := producer, true; more; _, rest, more = strings.Cut(rest, "/") {
		names = append(names, rest)
		if at := strings.LastIndexByte(rest, '/'); at >= 0 {
			if _, err := strconv.ParseUint(rest[at+1:], 10, 16); err == nil {
				names = append(names, rest[:at])
			}
		}
	}
	return names
}

// exportersOf returns the names that the exporter of a producer may have. They may contain slashes, as URIs do.
func exportersOf(producer string) (names []string) {
	for at, c := range producer + "/" {
		if c == '/' {
			names = append(names, producer[:at])
		}
	}
	return names
}

// down returns the names of silent producers known to be gone, in a process that began at the
// given time: taps of this host without a link, and exporters without recent requests.
func (c *collector) down(began time.Time, silent []table.Producer) []string {
	taps, gone := make(map[uint64]bool), make(map[string]bool)
	if instance, err := c.using.Load().Config.Collect.Name(); err == nil {
		for _, t := range c.agent.Taps() {
			taps[local.Producer(instance, t.Name())] = t.State() == capture.LinkUp
		}
	}
	if c.server != nil && c.log.sharing == nil { // in a fleet, exporters may have switched to another collector
		st := c.server.Stats()
		for _, e := range slices.Concat(st.Exporters, st.Removed) {
			gone[e.Name] = time.Since(began) > heardWithin && time.Since(e.Last) > heardWithin
		}
	}
	return downProducers(silent, taps, gone)
}

// downProducers returns the names of those silent producers that are taps without a link or
// streams of gone exporters. taps maps the taps of this host to the state of their link.
func downProducers(silent []table.Producer, taps map[uint64]bool, gone map[string]bool) (list []string) {
	for _, p := range silent {
		up, tap := taps[p.ID]
		if tap && !up || !tap && slices.ContainsFunc(exportersOf(p.Name), func(name string) bool { return gone[name] }) {
			list = append(list, p.Name)
		}
	}
	return list
}

// forgetting lets admins forget producers.
func forgetting(db *openedStore) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := db.store.Forget(r.Context(), r.PathValue("name"))
		switch {
		case errors.Is(err, store.ErrNoProducer):
			edge.WriteProblem(w, http.StatusNotFound, err.Error())
		case err != nil:
			db.logger.Warn("cannot forget a producer", slog.String("error", err.Error()))
			edge.WriteProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("forget %.64q: the store did not take it: try again", r.PathValue("name")))
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}
